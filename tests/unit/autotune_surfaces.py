"""Jobs that are not there: how fast a setting would be, and how noisy."""

import itertools
import math
import random

from keras_ring.core.autotune.search_space import Knob, defaults

# Of one job on several hosts, about.
KNOBS = (
    Knob("fusion_threshold", "bytes", 2**26, 2**16, 2**28),
    Knob("planned_bucket", "bytes", 2**24, 2**16, 2**26),
    Knob("linger", "microseconds", 0, 0, 5000),
    Knob("part_bytes", "bytes", 2**17, 2**13, 2**17),
    Knob("one_lane_bytes", "bytes", 2**16, 0, 2**20),
    Knob("allreduce_preference", "", 0, 0, 2),
)
# What a person would try: 5 x 4 x 3 = 60 settings of the knobs that people
# know, the others at their defaults.
_GRID = {
    "planned_bucket": (0.0, 0.25, 0.5, 0.75, 1.0),
    "part_bytes": (0.0, 1 / 3, 2 / 3, 1.0),
    "allreduce_preference": (0, 1, 2),
}


class Surface:
    """A random job: each knob has a best place, which may hardly matter.

    Args:
        seed: Of everything random.
        noise: Standard deviation of a sample, as a share.
        drift: By what the machine becomes slower with each sample.
    """

    def __init__(self, seed, noise=0.0, drift=0.0):
        self._random = random.Random(seed)
        draw = self._random
        self._ordered = {
            knob.name: (draw.random(), draw.choice((0.0, 0.02, 0.1, 0.5)))
            for knob in KNOBS
            if not knob.is_choice
        }
        # A choice may be a little better than the others, or ruin the job.
        self._choices = [draw.choice((0.0, 0.0, 0.05, 1.0)) for _ in range(3)]
        self._noise = noise
        self._drift = drift
        self._samples = 0

    def speed(self, setting):
        """Returns the true speed."""
        time = 1.0 + self._choices[setting["allreduce_preference"]]
        for knob in KNOBS:
            if knob.is_choice:
                continue
            best, weight = self._ordered[knob.name]
            away = abs(knob.position(setting[knob.name]) - best)
            time += weight * away**1.5
        return 1e9 / time

    def sample(self, setting):
        """Returns what is measured."""
        self._samples += 1
        noise = math.exp(self._random.gauss(0.0, self._noise))
        return self.speed(setting) * noise * (1 - self._drift) ** self._samples

    def best_of_grid(self):
        """Returns the speed of the best of 60 settings."""
        speeds = []
        for places in itertools.product(*_GRID.values()):
            setting = defaults(KNOBS)
            for name, place in zip(_GRID, places, strict=True):
                knob = next(knob for knob in KNOBS if knob.name == name)
                setting[name] = place if knob.is_choice else knob.at(place)
            speeds.append(self.speed(setting))
        assert len(speeds) == 60
        return max(speeds)
