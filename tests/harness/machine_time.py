"""Counts the seconds that a machine has had for its processes.

A deadline is there to end what hangs. On a machine that does other things as
well, ranks that work need longer, and have not hung.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

# Of a second of the clock at the least: what hangs in a loop ends, too.
_LEAST_SHARE = 1 / 4


def num_runnable() -> int:
    """Returns how many threads of this machine run or wait for a core."""
    running, _ = Path("/proc/loadavg").read_text().split()[3].split("/")
    # Without the one that asks.
    return int(running) - 1


class MachineTime:
    """A clock that goes slower where threads wait for a core.

    Args:
        clock: Returns seconds.
        runnable: Returns the number of threads that run or wait for a core.
        cores: Integer, how many can run.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        runnable: Callable[[], int] = num_runnable,
        cores: int | None = None,
    ) -> None:
        self._clock = clock
        self._runnable = runnable
        self._cores = cores or len(os.sched_getaffinity(0))
        self._last = clock()
        self._elapsed = 0.0

    def elapsed(self) -> float:
        """Returns the seconds since the clock was made.

        What was runnable is looked at now, so it is asked often.
        """
        now = self._clock()
        share = self._cores / max(self._runnable(), self._cores)
        self._elapsed += (now - self._last) * max(share, _LEAST_SHARE)
        self._last = now
        return self._elapsed
