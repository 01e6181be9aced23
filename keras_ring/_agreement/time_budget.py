"""How often to do what costs time, so that it costs little."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Budget:
    """Says when a check is due again.

    Checks are free until they have taken `allowance`. From then on they are
    made so rarely that they take `share` of the time. What is measured
    differs between ranks, so each says how many periods it would wait, and
    all wait for as many as the one that would wait longest.

    Args:
        allowance: Float, seconds.
        share: Float, of the time between checks.
    """

    def __init__(self, allowance: float, share: float = 0.01) -> None:
        self._allowance = allowance
        self._share = share
        self._began = time.perf_counter()
        self._spent = 0.0
        self._checks = 0
        self._periods = 0
        self._due = 1

    def is_due(self, periods: int = 1) -> bool:
        """Counts periods that have ended; whether to check now."""
        self._periods += periods
        return self._periods >= self._due

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Measures a check."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - began
            self._checks += 1

    def wish(self) -> int:
        """Returns how many periods this rank would wait for the next check."""
        if self._spent < self._allowance or not self._checks:
            return 1
        elapsed = time.perf_counter() - self._began - self._spent
        period = max(elapsed / max(1, self._periods), 1e-9)
        wanted = self._spent / self._checks / (self._share * period)
        return max(1, min(math.ceil(wanted), 1 << 30))

    def agreed(self, periods: int) -> None:
        """Takes what all ranks wait for."""
        self._due = self._periods + periods
