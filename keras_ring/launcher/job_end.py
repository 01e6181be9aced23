"""How a job has ended, wherever its ranks were."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keras_ring.launcher.summary import RankEnd, first_failure


@dataclass(frozen=True)
class JobEnd:
    """How a job ended.

    Args:
        ends: How each rank ended, in the order seen.
        first: The first failing rank; None if none failed by itself.
        tail: Its last lines of output.
        seconds: How long the job ran, up to the first failure if there is one.
        stop_signal: The signal by which the user ended the job; None if the
            job ended, or failed, before.
        leftover: Number of processes that the ranks had left running.
        started: Whether any rank has called `keras_ring.init()`.
    """

    ends: tuple[RankEnd, ...]
    first: RankEnd | None
    tail: tuple[str, ...]
    seconds: float
    stop_signal: int | None
    leftover: int
    started: bool = True

    @classmethod
    def of(
        cls,
        ends: Sequence[RankEnd],
        *,
        tail: Callable[[int], tuple[str, ...]],
        began: float,
        stop_signal: int | None,
        leftover: int,
        started: bool,
    ) -> "JobEnd":
        """Returns the end of a job whose ranks have all ended.

        Args:
            ends: How each rank ended, in the order seen.
            tail: Returns the last lines of a rank.
            began: When the job began, in seconds since the epoch.
            stop_signal: The signal by which the user ended the job.
            leftover: Number of processes that the ranks had left running.
            started: Whether any rank has called `keras_ring.init()`.
        """
        first = first_failure(ends)
        if first is not None and first.stopped and stop_signal is not None:
            first = None
        ended = time.time() if first is None else first.seen
        return cls(
            ends=tuple(ends),
            first=first,
            tail=() if first is None else tail(first.rank),
            seconds=ended - began,
            stop_signal=stop_signal,
            leftover=leftover,
            started=started,
        )
