"""The end of a job, on one host or several."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keras_ring.launch.summary import RankEnd, first_failure


@dataclass(frozen=True)
class JobEnd:
    """The end of a job.

    Args:
        ends: Tuple of `RankEnd`s, in the order in which they were seen.
        first: `RankEnd` of the first rank that failed. `None` if none failed by
            itself.
        tail: Tuple of strings, the last lines of output of `first`.
        seconds: Float, the duration of the job, until the first failure if
            there is one.
        stop_signal: Integer, the signal by which the user ended the job. `None`
            if the job ended or failed before.
        leftover: Integer, the number of processes that the ranks left running.
        started: Boolean, whether any rank has called `keras_ring.init()`.
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
            ends: Sequence of `RankEnd`s, in the order in which they were seen.
            tail: Function that returns the last lines of a rank.
            began: Float, the start of the job in seconds since the epoch.
            stop_signal: Integer, the signal by which the user ended the job, or
                `None`.
            leftover: Integer, the number of processes that the ranks left
                running.
            started: Boolean, whether any rank has called `keras_ring.init()`.
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
