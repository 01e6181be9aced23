"""What can be tuned, and on which scale it is searched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# A value for each knob, by name.
Setting = dict[str, int]

# Where the runtime would take almost anything: what is worth trying.
_WORTH_TRYING = {
    "fusion_threshold": (2**16, 2**28),
    "planned_bucket": (2**16, 2**26),
    "linger": (0, 5000),
}
# A knob is held where its variable is set: the user has decided.
_HELD_BY = {
    "fusion_threshold": "KERAS_RING_FUSION_THRESHOLD",
    "planned_bucket": "KERAS_RING_PLANNED_BUCKET",
    "linger": "KERAS_RING_CYCLE_TIME",
    "allreduce_preference": "KERAS_RING_ALLREDUCE",
}


@dataclass(frozen=True)
class Knob:
    """One number that the job can be given while it runs.

    Args:
        name: As the runtime calls it.
        unit: "bytes", "microseconds", or `""` of a choice among numbers that
            have no order.
        default: What the job has started with.
        low: The least.
        high: The most.
    """

    name: str
    unit: str
    default: int
    low: int
    high: int

    @property
    def is_choice(self) -> bool:
        """Whether its numbers have no order."""
        return not self.unit

    def at(self, position: float) -> int:
        """Returns the value at a position from 0 to 1.

        In steps of equal factors: what matters of a size is its magnitude.
        """
        low, high = math.log2(1 + self.low), math.log2(1 + self.high)
        value = round(2 ** (low + position * (high - low))) - 1
        return min(max(value, self.low), self.high)

    def position(self, value: int) -> float:
        """Returns where a value is, from 0 to 1."""
        low, high = math.log2(1 + self.low), math.log2(1 + self.high)
        position = (math.log2(1 + value) - low) / (high - low)
        return min(max(position, 0.0), 1.0)


def knobs_of(
    rows: Iterable[tuple[str, str, int, int, int]],
    environment: Mapping[str, str],
) -> list[Knob]:
    """Returns the knobs of a job.

    Args:
        rows: As the runtime tells them: name, unit, value and bounds.
        environment: Of this process. What it sets is not tuned.
    """
    knobs = []
    for name, unit, value, low, high in rows:
        if environment.get(_HELD_BY.get(name, "")):
            continue
        least, most = _WORTH_TRYING.get(name, (low, high))
        # The default is always there to go back to.
        least, most = min(least, value), max(most, value)
        if least < most:
            knobs.append(Knob(name, unit, value, least, most))
    return knobs


def defaults(knobs: Iterable[Knob]) -> Setting:
    """Returns the setting that the job has started with."""
    return {knob.name: knob.default for knob in knobs}


def text_of(setting: Setting) -> str:
    """Returns a setting for people: "linger=0, part_bytes=8192"."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())
