"""A clock that does not count time in which this process was stopped.

A process may be stopped together with the processes that it waits for: by a
scheduler that suspends its job, by a frozen container, or while its virtual
machine moves to another host. Or it may wait long for a disk. When it
continues, that time looks like silence of the other processes, so limits on
silence must not count it.

This module uses the standard library only.
"""

import time
from collections.abc import Callable


class RunningClock:
    """A `time.monotonic` without the time that was lost.

    Args:
        gap: Float, the longest time in seconds between two calls of `look`
            while this process runs. Any longer time is lost.
        clock: Function that returns the time in seconds, with the lost time.
    """

    def __init__(
        self, gap: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gap = gap
        self._clock = clock
        self._lost = 0.0
        self._looked = clock()

    def now(self) -> float:
        """Returns the time in seconds.

        It is at most `gap` after the last call of `look`, because this process
        may have been stopped since.
        """
        return min(self._clock(), self._looked + self._gap) - self._lost

    def look(self) -> float:
        """Returns the seconds that were lost since the last call."""
        now = self._clock()
        lost = max(0.0, now - self._looked - self._gap)
        self._looked = now
        self._lost += lost
        return lost
