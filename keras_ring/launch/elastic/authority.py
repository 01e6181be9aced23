"""Decides who the members of an elastic job are."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from keras_ring.launch.elastic.messages import (
    MemberReport,
    NextGeneration,
    Settlement,
    Stand,
    encode_end,
    encode_next,
    encode_over,
    encode_waiting,
)
from keras_ring.launch.elastic.settlement import SettlementError, settle


@dataclass(frozen=True)
class Change:
    """A generation that follows another one.

    Args:
        generation: Integer, its number.
        lost: Tuple of the members that are no longer in it.
        joined: Tuple of those that were not in the one before it.
        left: Tuple of those that live and were to leave it.
        members: Tuple of its members, in the order of their ranks.
        cause: String, what the first rank has said of the end of the one before
            it.
        settled: Tuple of `Settlement`s.
    """

    generation: int
    lost: tuple[int, ...]
    joined: tuple[int, ...]
    members: tuple[int, ...]
    cause: str
    settled: tuple[Settlement, ...]
    left: tuple[int, ...] = ()


class Authority:
    """The one place where the members of a job are decided.

    A member is a process of the job: it has the number of the rank that it was
    started as, which no other process ever has. A generation of the job is over
    once one of its members says so. The next one has those that live, in the
    order of their ranks, and begins once all of them have reported: who lives
    is never left out.

    Other processes report that they are to join. The members are told how many
    wait, and agree on a step after which they report that they are between two
    steps. If all have reported that, those that wait are in the next generation
    as well, behind the others. Members that are to leave are not in it: they do
    not hear of it, and wait until they are ended.

    It neither waits nor sends: its owner tells it what happens, and sends what
    it returns.

    Args:
        members: Sequence of the first members, in the order of their ranks.
        generation: Integer, the number of the first generation.
        least: Integer, the fewest members with which the job is to go on. Fewer
            go on up to the end of a step, and wait there for others to join.
    """

    def __init__(
        self, members: Sequence[int], generation: int = 0, *, least: int = 1
    ) -> None:
        self._generation = generation
        self._members = tuple(members)
        self._least = least
        self._joining: dict[int, MemberReport] = {}
        # What the members were told last.
        self._told = 0
        self._dead: set[int] = set()
        self._leaving: set[int] = set()
        # The reason why there is no further generation.
        self._over = ""
        self._reports: dict[int, MemberReport] = {}
        self.changes: list[Change] = []
        """The generations that have followed the first one."""

    @property
    def members(self) -> tuple[int, ...]:
        """The members of the generation, in the order of their ranks."""
        return self._members

    def on_deaths(
        self, members: Collection[int], *, why: str = ""
    ) -> dict[int, bytes]:
        """Takes note that processes have ended.

        Args:
            members: Collection of these members.
            why: String, how they were lost, if the others have to be told. The
                generation is over then.

        Returns:
            Dictionary of messages to send, by member.
        """
        self._dead.update(members)
        for member in members:
            self._reports.pop(member, None)
            self._joining.pop(member, None)
        over = {}
        if why and not self._over and self._dead & set(self._members):
            over = {
                each: encode_over(self._generation, why)
                for each in self.living
                if not self._has_left(each)
            }
        return {**over, **self._decide()}

    def _has_left(self, member: int) -> bool:
        report = self._reports.get(member)
        return report is not None and report.stand == Stand.LEFT

    def leave(self, members: Collection[int]) -> None:
        """Takes note that members are to leave between two steps.

        The others have to be told that somebody waits (`tell_waiting`).
        """
        self._leaving.update(members)

    def on_report(self, member: int, report: MemberReport) -> dict[int, bytes]:
        """Takes note of what a member has reported.

        Returns:
            Dictionary of messages to send, by member.
        """
        if member in self._dead:
            return {}
        if self._over:
            return {member: encode_end(self._over)}
        if report.stand == Stand.JOINS:
            self._joining[member] = report
            return self._decide()
        if report.generation < self._generation:
            # It has been told of the next one, and has not read that yet.
            return {}
        if report.generation != self._generation:
            self._reports[member] = report
            return self.end(
                f"rank {member} has reported on generation"
                f" {report.generation}, in generation {self._generation}"
            )
        self._reports[member] = report
        return self._decide()

    def end(self, reason: str) -> dict[int, bytes]:
        """Ends the job: from now on no generation follows.

        Args:
            reason: String, which the members are told when they report.

        Returns:
            Dictionary of messages to send, by member.
        """
        self._over = self._over or reason
        waiting = [each for each in self.living if each in self._reports]
        waiting += self._joining
        self._reports, self._joining = {}, {}
        return {each: encode_end(self._over) for each in waiting}

    @property
    def awaited(self) -> tuple[int, ...]:
        """The members whose reports others wait for, and which owe them now.

        One that is to report between two steps may take its time until then.
        """
        reports = self._reports.values()
        if all(report.stand == Stand.ADMITS for report in reports):
            return ()
        return tuple(each for each in self.living if each not in self._reports)

    @property
    def living(self) -> tuple[int, ...]:
        """The members whose processes have not ended."""
        return tuple(each for each in self._members if each not in self._dead)

    def _decide(self) -> dict[int, bytes]:
        living = self.living
        if (
            self._over
            or not living
            or any(each not in self._reports for each in living)
        ):
            return {}
        reports = [self._reports[each] for each in living]
        admitted = all(report.stand == Stand.ADMITS for report in reports)
        joined = tuple(sorted(self._joining)) if admitted else ()
        left = tuple(each for each in living if each in self._leaving)
        if not admitted or len(left) == len(living):
            left = ()
        stay = tuple(each for each in living if each not in left)
        if admitted and len(stay) + len(joined) < self._least:
            return {}
        try:
            settled = settle(reports)
        except SettlementError as error:
            return self.end(str(error))
        change = Change(
            generation=self._generation + 1,
            lost=tuple(each for each in self._members if each in self._dead),
            joined=joined,
            members=stay + joined,
            cause=reports[0].cause,
            settled=settled,
            left=left,
        )
        meets = self._reports[stay[0]]
        self.changes.append(change)
        self._generation = change.generation
        self._members = change.members
        self._reports = {}
        for member in joined:
            del self._joining[member]
        self._told = 0
        return {
            member: encode_next(
                NextGeneration(
                    change.generation,
                    rank,
                    change.members,
                    meets.host,
                    meets.port,
                    settled,
                    admitted,
                )
            )
            for rank, member in enumerate(change.members)
        }

    def tell_waiting(self) -> dict[int, bytes]:
        """Returns messages for members who do not know yet that others wait.

        A generation that begins knows of none, so this follows each message
        that it has begun.
        """
        living = self.living
        leaving = len(self._leaving & set(living))
        waiting = len(self._joining) + leaving
        waiting = waiting or int(len(living) < self._least)
        if self._over or waiting == self._told:
            return {}
        self._told = waiting
        return {each: encode_waiting(waiting) for each in living}
