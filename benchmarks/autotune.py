"""What autotune finds, against the default and the best of a grid.

    keras-ring run -np 2 -- python -m benchmarks.autotune

One job reduces the gradients of a model over and over. It is tuned as
`--autotune` does it; then each of 60 settings of three knobs gets a sample, as
a person would try them; then the default, what autotune has kept and the best
of the grid are measured in turns. Prints the medians of these, as JSON or a
table.
"""

import argparse
import itertools
import json
import statistics

import tensorflow as tf
from tabulate import tabulate

import keras_ring as kr
from keras_ring.bench.shapes import STEPS
from keras_ring.core import native
from keras_ring.core.autotune.log_file import TuningLog
from keras_ring.core.autotune.proposals import OptunaProposals
from keras_ring.core.autotune.search_space import defaults, knobs_of
from keras_ring.core.autotune.tuning import tuning
from keras_ring.core.autotune.tuning_cache import KeptSettings
from keras_ring.core.autotune.worker import (
    SETTLING,
    Reading,
    Sampler,
    TunedJob,
    Worker,
)

# The grid: of each row the first knob that the job has, at so many places.
_GRID = (
    (("planned_bucket",), 5),
    (("exchange_bytes", "direct_part_bytes", "part_bytes"), 4),
    (("allreduce_preference", "linger"), 3),
)


def make_step(shapes):
    """Returns a step of a training without a model; takes and returns a flag.

    Args:
        shapes: Of the gradients.
    """
    inputs = [tf.random.stateless_normal(shape, [1, 2]) for shape in shapes]

    @tf.function
    def step(flag):
        results = [
            kr.allreduce(tensor, name=f"gradient.{index}")
            for index, tensor in reversed(list(enumerate(inputs)))
        ]
        return results, kr.allreduce(flag, kr.Max, name="flag")

    return lambda flag: bool(step(tf.constant(float(flag)))[1])


def grid_of(knobs):
    """Returns the settings that a person would try."""
    by_name = {knob.name: knob for knob in knobs}
    axes = []
    for names, count in _GRID:
        knob = next(by_name[name] for name in names if name in by_name)
        places = [place / (count - 1) for place in range(count)]
        values = (
            range(knob.low, knob.high + 1)
            if knob.is_choice
            else [knob.at(place) for place in places]
        )
        axes.append([(knob.name, value) for value in values])
    default = defaults(knobs)
    return [{**default, **dict(chosen)} for chosen in itertools.product(*axes)]


class Driver:
    """Rank 0's part: `run` yields once for each step.

    Args:
        core: The runtime.
        arguments: Of the command line.
    """

    def __init__(self, core, arguments):
        self._core = core
        self._arguments = arguments
        self._knobs = knobs_of(core.tunables(), {})
        self.rows = []

    def run(self):
        """Tunes, tries the grid, compares."""
        default = defaults(self._knobs)
        kept = yield from self._tune()
        grid = []
        for setting in grid_of(self._knobs):
            score = yield from self._sample(setting)
            grid.append((score, setting))
        best = max(grid, key=lambda one: one[0])[1]
        names = {"default": default, "autotune": kept, "best of grid": best}
        scores = {name: [] for name in names}
        for turn in range(self._arguments.rounds):
            order = list(names) if turn % 2 == 0 else list(names)[::-1]
            for name in order:
                score = yield from self._sample(names[name])
                scores[name].append(score)
        against = statistics.median(scores["default"])
        for name, setting in names.items():
            median = statistics.median(scores[name])
            changed = {k: v for k, v in setting.items() if v != default[k]}
            self.rows.append(
                {
                    "setting": name,
                    "MB/s": round(median / 1e6, 1),
                    "of default": round(median / against, 3),
                    "changed": changed,
                }
            )

    def _tune(self):
        machine = tuning(
            defaults(self._knobs),
            OptunaProposals(self._knobs),
            warmup=3,
            max_samples=self._arguments.samples,
        )
        job = TunedJob(
            core=self._core,
            knobs=self._knobs,
            tuning=machine,
            log=TuningLog(self._arguments.log, self._knobs),
            kept=KeptSettings(None),
            cluster={},
            steps_per_sample=self._arguments.steps,
        )
        worker = Worker(job)
        while not worker.done:
            worker.tick()
            yield
        return self._now()

    def _now(self):
        values = {row[0]: row[2] for row in self._core.tunables()}
        return {knob.name: values[knob.name] for knob in self._knobs}

    def _sample(self, setting):
        now = self._now()
        for name, value in setting.items():
            if now[name] != value:
                self._core.tune(name, value)
        sampler = Sampler(self._arguments.steps)
        sampler.restart(SETTLING)
        score = None
        while score is None:
            yield
            score = sampler.add(Reading.of(self._core.metrics()))
        return score


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(STEPS), default="resnet50")
    parser.add_argument("--steps", type=int, default=10, help="of a sample")
    parser.add_argument("--samples", type=int, default=20, help="to explore")
    parser.add_argument("--rounds", type=int, default=10, help="to compare")
    parser.add_argument("--log", default="", help="of the tuning, as CSV")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    kr.init()
    step = make_step(STEPS[arguments.model]())
    driver = Driver(native.core(), arguments)
    run = driver.run() if kr.rank() == 0 else itertools.repeat(None)
    while not step(next(run, "over") == "over"):
        pass
    if kr.rank() != 0:
        return
    if arguments.json:
        print(json.dumps(driver.rows))
    else:
        print(tabulate(driver.rows, headers="keys"))


if __name__ == "__main__":
    main()
