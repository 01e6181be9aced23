"""How fast the job is, from what the runtime counts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple


class Reading(NamedTuple):
    """What the runtime has counted until now, of equal steps."""

    steps: int
    nanoseconds: int
    num_bytes: int
    tensors: int

    @classmethod
    def of(cls, metrics: Mapping[str, int]) -> Reading:
        """Returns these of the runtime's counters."""
        return cls(
            metrics["steps"],
            metrics["step_ns"],
            metrics["step_bytes"],
            metrics["step_tensors"],
        )


class Sampler:
    """Makes samples of readings, which come at any times.

    A sample is of `steps_per_sample` steps or a few more. Between any two
    readings in it lie one step or several, whose speed [bytes of tensors per
    second of their wall time] is one number; the sample is the median of these,
    so that a step with a checkpoint or a validation in it does not count.

    Args:
        steps_per_sample: Integer.
    """

    def __init__(self, steps_per_sample: int) -> None:
        self._steps_per_sample = steps_per_sample
        self._skip = 0
        self._began: Reading | None = None
        self._last: Reading | None = None
        self._speeds: list[float] = []

    def restart(self, settling: int) -> None:
        """Begins a sample, once so many steps more are over."""
        self._skip = settling
        self._began = self._last = None
        self._speeds = []

    def add(self, reading: Reading) -> float | None:
        """Takes a reading; returns the sample, if that was its last."""
        if self._began is None:
            self._began = reading
            # The step that is under way has begun under another setting.
            self._skip += 1
        if self._last is None:
            if reading.steps - self._began.steps >= self._skip:
                self._began = self._last = reading
            return None
        nanoseconds = reading.nanoseconds - self._last.nanoseconds
        if reading.steps == self._last.steps or nanoseconds <= 0:
            return None
        moved = reading.num_bytes - self._last.num_bytes
        self._speeds.append(moved / (nanoseconds * 1e-9))
        self._last = reading
        if reading.steps - self._began.steps < self._steps_per_sample:
            return None
        return statistics.median(self._speeds)
