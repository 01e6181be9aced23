"""Intervals between checks that keep their cost low."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from keras_ring.core import generations


class Budget:
    """A schedule of checks with a limited cost.

    A check is due in each period until checks have taken `allowance`. From
    then on they are made so rarely that they take `share` of the time.
    Measured times differ between ranks, so each rank tells how many periods it
    would wait, and all wait for the largest number. When others have come into
    the job, all begin anew, as these do.

    Args:
        allowance: Float, seconds that checks may take without a limit.
        share: Float, the fraction of the time that later checks may take.
    """

    def __init__(self, allowance: float, share: float = 0.01) -> None:
        self._allowance = allowance
        self._share = share
        self._begin()

    def _begin(self) -> None:
        self._num_admissions = generations.num_admissions()
        self._began = time.perf_counter()
        self._spent = 0.0
        self._checks = 0
        self._periods = 0
        self._due = 1

    def is_due(self, periods: int = 1) -> bool:
        """Counts periods that have ended, and returns whether to check now."""
        if self._num_admissions != generations.num_admissions():
            self._begin()
        self._periods += periods
        return self._periods >= self._due

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Measures the time of a check, which runs in the context."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - began
            self._checks += 1

    def wish(self) -> int:
        """Returns the number of periods that this rank would wait."""
        if self._spent < self._allowance or not self._checks:
            return 1
        elapsed = time.perf_counter() - self._began - self._spent
        period = max(elapsed / max(1, self._periods), 1e-9)
        wanted = self._spent / self._checks / (self._share * period)
        return max(1, min(math.ceil(wanted), 1 << 30))

    def agreed(self, periods: int) -> None:
        """Sets the number of periods until the next check of all ranks."""
        self._due = self._periods + periods
