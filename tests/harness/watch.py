"""Waits for the ranks of a test, and ends them when they must end."""

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from keras_ring.launch.rank_process import RankProcess
from tests.harness.machine_time import MachineTime
from tests.harness.running import RunningRanks

_FAILURE_GRACE = 2.0
# How often it is looked how busy the machine is.
_PERIOD = 1.0
_TERM_GRACE = 5.0
_KILL_GRACE = 5.0


@dataclass
class Watched:
    """What was seen of the ranks.

    Args:
        exit_codes: Rank -> exit code.
        end_times: Rank -> when its end was seen (`time.monotonic`).
        looks: Rank -> the same in seconds since the epoch, one time for all
            that were seen at one look.
        stopped: Ranks that ended only after a signal of ours.
        timed_out: Whether the deadline passed.
    """

    exit_codes: dict[int, int] = field(default_factory=dict)
    end_times: dict[int, float] = field(default_factory=dict)
    looks: dict[int, float] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    timed_out: bool = False


class Watch:
    """The event loop of one run.

    Args:
        ranks: The started ranks.
        notices: For each rank, the reading end of its notification pipe.
        running: Gets what the ranks tell.
        deadline: Seconds in which the run must be over; on a busy machine
            it has as many of `MachineTime`.
        unexpected: Tells whether an exit code of a rank is a failure.
    """

    def __init__(
        self,
        ranks: Sequence[RankProcess],
        notices: Sequence[int],
        running: RunningRanks,
        deadline: float,
        unexpected: Callable[[int, int], bool],
    ) -> None:
        self._running = running
        self._unexpected = unexpected
        self._alive = list(ranks)
        self._seen = Watched()
        self._schedule: list[tuple[float, int]] = []
        self._deadline = deadline
        self._time = MachineTime()
        self._selector = selectors.DefaultSelector()
        for process, fd in zip(ranks, notices, strict=True):
            self._selector.register(process, selectors.EVENT_READ, process)
            self._selector.register(
                fd, selectors.EVENT_READ, (process.rank, fd)
            )

    def run(self) -> Watched:
        """Returns once every rank has ended or cannot be killed."""
        with self._selector:
            while self._alive:
                self._look()
                if not self._follow_schedule():
                    break
        self._running.finish()
        return self._seen

    def _look(self) -> None:
        timeout = _PERIOD
        if self._schedule:
            timeout = max(0.0, self._schedule[0][0] - time.monotonic())
        elif not self._seen.timed_out:
            left = self._deadline - self._time.elapsed()
            timeout = min(max(0.0, left), _PERIOD)
        events = self._selector.select(timeout)
        for key, _ in events:
            if isinstance(key.data, tuple):
                self._read_notice(*key.data)
        look = time.time()
        for process in list(self._alive):
            code = process.poll()
            if code is None:
                continue
            self._alive.remove(process)
            self._selector.unregister(process)
            self._seen.exit_codes[process.rank] = code
            # Now, not at the start of the look: it may have died since.
            self._seen.end_times[process.rank] = time.monotonic()
            self._seen.looks[process.rank] = look
            if self._unexpected(process.rank, code) and not self._schedule:
                self._end_after(_FAILURE_GRACE)

    def _read_notice(self, rank: int, fd: int) -> None:
        # One write of a short line arrives whole.
        data = os.read(fd, 65536)
        if data:
            self._running.add(rank, data.decode().splitlines())
        else:
            self._selector.unregister(fd)

    def _end_after(self, seconds: float) -> None:
        term = time.monotonic() + seconds
        kill = term + _TERM_GRACE
        self._schedule = [
            (term, signal.SIGTERM),
            (kill, signal.SIGKILL),
            (kill + _KILL_GRACE, 0),
        ]

    def _follow_schedule(self) -> bool:
        now = time.monotonic()
        is_over = self._time.elapsed() >= self._deadline
        if is_over and not self._seen.timed_out and self._alive:
            self._seen.timed_out = True
            if not self._schedule:
                self._end_after(0.0)
        while self._schedule and self._schedule[0][0] <= now:
            _, signum = self._schedule.pop(0)
            if not signum:
                return False
            for process in self._alive:
                self._seen.stopped.add(process.rank)
                process.send(signum)
        return True
