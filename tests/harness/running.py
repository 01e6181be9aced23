"""The ranks while they run, as a test's `on_start` sees them."""

import threading
import time
from collections.abc import Sequence

from keras_ring.launch import job_processes
from keras_ring.launch.rank_process import RankProcess


class RunningRanks:
    """Lets a test wait for points in its ranks, and do harm to them.

    Args:
        ranks: The started ranks.
    """

    def __init__(self, ranks: Sequence[RankProcess]) -> None:
        self._ranks = list(ranks)
        self._lines: list[list[str]] = [[] for _ in ranks]
        self._over = False
        self._changed = threading.Condition()

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank."""
        return [rank.pid for rank in self._ranks]

    def send(self, rank: int, signum: int) -> float:
        """Sends a signal to one rank; returns the time just before."""
        before = time.monotonic()
        job_processes.send([self._ranks[rank].pid], signum)
        return before

    def wait_for(self, rank: int, text: str, timeout: float = 30.0) -> None:
        """Waits until a rank has called `notify(text)`.

        Raises:
            TimeoutError: If it does not within `timeout` seconds, or the run
                is over.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._over or text in self._lines[rank], timeout
            )
            if text not in self._lines[rank]:
                raise TimeoutError(
                    f"rank {rank} did not come to {text!r};"
                    f" it came to {self._lines[rank]}"
                )

    def add(self, rank: int, lines: Sequence[str]) -> None:
        """Notes what a rank has told; called by the harness."""
        with self._changed:
            self._lines[rank] += lines
            self._changed.notify_all()

    def finish(self) -> None:
        """Wakes whoever waits, since nothing more will come."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
