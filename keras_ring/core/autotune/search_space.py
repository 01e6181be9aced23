"""The parameters that autotune can set, and the scale of their search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# A value for each knob, by name.
Setting = dict[str, int]

# Narrower bounds for knobs of which the runtime accepts almost any value.
_WORTH_TRYING = {
    "fusion_threshold": (2**16, 2**28),
    "planned_bucket": (2**16, 2**26),
    "linger": (0, 5000),
}
# A knob is not tuned if the user has set its environment variable.
_HELD_BY = {
    "fusion_threshold": "KERAS_RING_FUSION_THRESHOLD",
    "planned_bucket": "KERAS_RING_PLANNED_BUCKET",
    "linger": "KERAS_RING_CYCLE_TIME",
    "allreduce_preference": "KERAS_RING_ALLREDUCE",
}


@dataclass(frozen=True)
class Knob:
    """One number that can be changed while the job runs.

    Args:
        name: Name of the number in the runtime.
        unit: "bytes", "microseconds", or `""` for a choice among numbers that
            have no order.
        default: Integer, the value that the job has started with.
        low: Integer, the smallest value.
        high: Integer, the largest value.
    """

    name: str
    unit: str
    default: int
    low: int
    high: int

    @property
    def is_choice(self) -> bool:
        """Returns whether the numbers are choices without an order."""
        return not self.unit

    def at(self, position: float) -> int:
        """Returns the value at a position from 0 to 1.

        The scale is logarithmic: what matters of a size is its magnitude.
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
        rows: Name, unit, value and bounds of each knob, from the runtime.
        environment: Environment of this process. A knob that it sets is not
            tuned.
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
