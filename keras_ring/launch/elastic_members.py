"""The ranks of an elastic job, and what they are told of each other."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from keras_ring.launch.elastic.authority import Authority, Change
from keras_ring.launch.elastic.joiners import Joiners
from keras_ring.launch.elastic.messages import (
    MessageError,
    Stand,
    decode_report,
)
from keras_ring.observe.words import rank_names

# Seconds that a busy machine may delay the launcher.
_OWN_DELAY = 2.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of ranks of an elastic job.

    Args:
        first: Integer, the number at its start.
        least: Integer, the fewest with which it goes on.
        most: Integer, the most. It has fewer only until others have joined.
            `None` if no others are started.
        timeout: Float, the seconds for which it may have fewer than `least`.
        resets: Integer, how often its ranks may change. `None` for no limit.
    """

    first: int
    least: int = 1
    most: int | None = None
    timeout: float = math.inf
    resets: int | None = None


class Members:
    """The ranks of a job that goes on without those that it loses.

    Args:
        sizes: `Sizes` of the job.
        say: Function that prints a line.
        send: Function that sends a message to a rank, which may have ended.
        silence: Float, the seconds for which a rank may be silent that others
            wait for.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        say: Callable[[str], None],
        send: Callable[[int, bytes], None],
        silence: float,
    ) -> None:
        self._sizes = sizes
        self._authority = Authority(range(sizes.first), least=sizes.least)
        self._joiners = Joiners(sizes.first, sizes.most or 0)
        # When the job has had fewer ranks than it must have for too long.
        self._too_few_until = math.inf
        self._say = say
        self._send_to = send
        self._shown = 0
        self._joined: list[int] = []
        self._left: list[int] = []
        self._addresses: dict[int, str] = {}
        self._silence = silence
        self._deadline: float | None = None
        self._is_over = False

    def on_end(self, ranks: Collection[int], *, why: str = "") -> None:
        """Takes note that processes of the job have ended.

        Args:
            ranks: Collection of their ranks.
            why: String, how they were lost, if the others cannot see that for
                themselves.
        """
        for rank in ranks:
            if self.is_joining(rank):
                self._joiners.on_end(rank, failed=not why)
        self._send(self._authority.on_deaths(ranks, why=why))
        if self._is_over:
            return
        if len(self._authority.living) >= self._sizes.least:
            self._too_few_until = math.inf
        elif math.isinf(self._too_few_until):
            self._too_few_until = time.monotonic() + self._sizes.timeout

    def on_leave(self, rank: int) -> None:
        """Takes note that a rank has ended well: the program is over."""
        self._close()
        self.on_end([rank])

    def _close(self) -> None:
        """Lets nobody join any more."""
        self._joiners.close()
        self._too_few_until = math.inf
        self._is_over = True

    def to_start(self, room: int | None = None) -> tuple[int, ...]:
        """Returns the numbers of processes to start that join the job.

        Args:
            room: Integer, the most that can be started. `None` for any number.
        """
        return self._joiners.start(len(self._authority.living), room)

    def is_joining(self, number: int) -> bool:
        """Returns whether a process has not been let in yet."""
        return number in self._joiners.waiting

    def leave(self, ranks: Collection[int]) -> None:
        """Lets ranks leave the job between two steps; see `take_left`."""
        self._authority.leave(ranks)
        self._send({})

    def take_left(self) -> list[int]:
        """Returns the ranks that have left since the last call.

        They wait, and are to be ended.
        """
        left, self._left = self._left, []
        return left

    def take_joined(self) -> list[int]:
        """Returns those that have been let in since the last call."""
        joined, self._joined = self._joined, []
        return joined

    @property
    def joining(self) -> frozenset[int]:
        """The processes that have not been let in yet."""
        return self._joiners.waiting

    def address_of(self, rank: int) -> str:
        """Returns where a rank would serve the store; `""` if unknown."""
        return self._addresses.get(rank, "")

    def in_vain(self) -> frozenset[int]:
        """Returns those that wait to be let in by nobody."""
        if self._is_over or not self._authority.living:
            return self._joiners.waiting
        return frozenset()

    def why_over(self, lost: Collection[int], how: str) -> str:
        """Returns why the job cannot go on without ranks that it has lost.

        It is `""` if it can.

        Args:
            lost: Collection of the ranks.
            how: String, such as `"was killed"`.
        """
        left = len(set(self._authority.living) - set(lost))
        least = self._sizes.least
        if left >= least or (left and self._joiners.may_come):
            return ""
        return (
            f"{rank_names(sorted(lost))} {how}, and {left} of"
            f" {self._sizes.first} ranks are left, fewer than --min-np {least}"
        )

    def take_end(self) -> str:
        """Returns why the job is to end although ranks are left.

        It is `""` if it may go on, and after `end`.
        """
        left, least = len(self._authority.living), self._sizes.least
        if not left or self._is_over:
            return ""
        resets = self._sizes.resets
        if resets is not None and len(self.changes) > resets:
            return (
                f"the ranks have changed {len(self.changes)} times, more often"
                f" than --reset-limit {resets} allows"
            )
        if left >= least:
            return ""
        few = f"{left} ranks are left, fewer than --min-np {least}"
        if self._sizes.most is None:
            return ""  # which `why_over` has said
        if not self._joiners.may_come and not self._joiners.waiting:
            why = "those that were to join have failed"
        elif time.monotonic() >= self._too_few_until:
            why = f"no others have joined in {self._sizes.timeout:g} s"
        else:
            return ""
        return f"{few}, and {why}"

    def end(self, reason: str) -> None:
        """Ends the job: the ranks are told the reason when they ask."""
        self._close()
        self._send(self._authority.end(reason))

    @property
    def deadline(self) -> float | None:
        """The time, by `time.monotonic`, until which ranks are awaited."""
        times = [self._deadline or math.inf, self._too_few_until]
        return None if math.isinf(min(times)) else min(times)

    def take_silent(self) -> tuple[int, ...]:
        """Returns the ranks that have not reported in time.

        The others wait for them. They are returned once for each time.
        """
        now = time.monotonic()
        if self._deadline is None or now < self._deadline:
            return ()
        late = now - self._deadline
        self._deadline = now + self._silence
        # The launcher wakes up at the deadline, unless it was stopped itself,
        # maybe together with the ranks.
        return self._authority.awaited if late < _OWN_DELAY else ()

    @property
    def changes(self) -> list[Change]:
        """The generations that have followed the first one."""
        return self._authority.changes

    @property
    def is_changing(self) -> bool:
        """True while ranks wait for reports of others."""
        return self._deadline is not None

    def hear(self, rank: int, message: bytes) -> None:
        """Takes note of what a rank has said."""
        try:
            report = decode_report(message)
        except MessageError as error:
            self._say(f"rank {rank} has sent {error}")
            return
        if report.stand != Stand.JOINS:
            self._addresses[rank] = report.host
        self._send(self._authority.on_report(rank, report))

    def _send(self, messages: dict[int, bytes]) -> None:
        waiting = self._authority.tell_waiting()
        for rank, message in (*messages.items(), *waiting.items()):
            self._send_to(rank, message)
        for change in self.changes[self._shown :]:
            self._say(_line(change))
            self._left += change.left
            for number in change.joined:
                self._joiners.on_join(number)
                self._joined.append(number)
            if len(change.members) >= self._sizes.least:
                self._too_few_until = math.inf
        self._shown = len(self.changes)
        if not self._authority.awaited:
            self._deadline = None
        elif self._deadline is None:
            self._deadline = time.monotonic() + self._silence


def _line(change: Change) -> str:
    left = len(change.members)
    kept = "1 rank goes on" if left == 1 else f"{left} ranks go on"
    news = []
    if change.lost:
        news.append(f"lost {rank_names(change.lost)}")
    if change.left:
        verb = "has" if len(change.left) == 1 else "have"
        news.append(f"{rank_names(change.left)} {verb} left")
    if change.joined:
        verb = "has" if len(change.joined) == 1 else "have"
        news.append(f"{rank_names(change.joined)} {verb} joined")
    if not news:
        why = f": {change.cause}" if change.cause else ""
        return f"{kept} after an interruption{why}"
    return f"{', '.join(news)}; {kept}"
