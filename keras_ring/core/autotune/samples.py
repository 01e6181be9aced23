"""How fast the job is, from what the runtime counts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple


class Reading(NamedTuple):
    """Totals that the runtime has counted so far, over equal steps."""

    steps: int
    nanoseconds: int
    num_bytes: int
    tensors: int

    @classmethod
    def of(cls, metrics: Mapping[str, int]) -> Reading:
        """Returns the reading in a snapshot of the runtime's counters."""
        return cls(
            metrics["steps"],
            metrics["step_ns"],
            metrics["step_bytes"],
            metrics["step_tensors"],
        )


class Sampler:
    """Makes samples of readings, which come at any times.

    A sample covers `steps_per_sample` steps or a few more. One step or several
    lie between two readings in it, and have one speed (bytes of tensors per
    second of wall time). The sample is the median of these speeds, so that a
    step with a checkpoint or a validation in it does not count.

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
        """Begins a new sample after `settling` more steps."""
        self._skip = settling
        self._began = self._last = None
        self._speeds = []

    def add(self, reading: Reading) -> float | None:
        """Takes a reading; returns the sample, if that was its last."""
        if self._began is None:
            self._began = reading
            # The current step has begun under another setting.
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
