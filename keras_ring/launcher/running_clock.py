"""Time as far as this process has run, for limits on the silence of others.

A process may be stopped together with all that it waits for: by a scheduler
that suspends its job, the freezer of its containers, or the host that its
virtual machine is moved to; or it waits long for a disk. When it goes on, that
looks like the silence of the others. So that time does not count.

Standard library only.
"""

import time
from collections.abc import Callable


class RunningClock:
    """Shows `time.monotonic` without what was lost.

    Args:
        gap: The longest time in seconds between two calls of `look`, as long
            as this process runs. What goes beyond it is lost.
        clock: The clock that counts all time.
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

        At most the gap beyond the last look: this process may be stopped
        between that and this.
        """
        return min(self._clock(), self._looked + self._gap) - self._lost

    def look(self) -> float:
        """Returns how many seconds were lost since the last call."""
        now = self._clock()
        lost = max(0.0, now - self._looked - self._gap)
        self._looked = now
        self._lost += lost
        return lost
