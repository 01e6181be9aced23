"""Acts of the launcher when ranks of an elastic job end, or are to join."""

from collections.abc import Callable, Sequence

from keras_ring.launch.elastic_members import Members, Sizes
from keras_ring.launch.ending import Ending
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.summary import RankEnd
from keras_ring.launch.usage import say

# Seconds for which a rank of an elastic job may be silent after the others have
# noticed a loss. Its thread for that needs milliseconds, so it is stopped.
_SILENCE = 10.0


class ElasticRanks:
    """The ranks of an elastic job, on one host or several.

    Args:
        members: `Members` of the job.
        ending: `Ending` of the job.
        kill: Function that kills what is left of a rank.
    """

    def __init__(
        self, members: Members, ending: Ending, kill: Callable[[int], None]
    ) -> None:
        self._members = members
        self._ending = ending
        self._kill = kill
        self._killed: set[int] = set()
        self.hear = members.hear
        """Takes note of what a rank has said."""

    @classmethod
    def of(
        cls,
        plan: LaunchPlan,
        ending: Ending,
        *,
        send: Callable[[int, bytes], None],
        kill: Callable[[int], None],
    ) -> "ElasticRanks | None":
        """Returns those of a plan. `None` if its job is not elastic.

        Args:
            plan: `LaunchPlan` of the job.
            ending: `Ending` of the job.
            send: Function that sends a message to a rank.
            kill: Function that kills what is left of a rank.
        """
        if plan.min_size is None:
            return None
        sizes = Sizes(
            first=plan.size,
            least=plan.min_size,
            most=plan.max_size,
            timeout=plan.patience.elastic_timeout,
            resets=plan.reset_limit,
        )
        silence = _SILENCE
        if plan.host_ranks:
            # A network may stand still for as long as that.
            silence = max(silence, plan.patience.host_timeout + _SILENCE)
        members = Members(sizes, say=say, send=send, silence=silence)
        return cls(members, ending, kill)

    @property
    def deadline(self) -> float | None:
        """The time, by `time.monotonic`, at which to call `follow`."""
        return self._members.deadline

    @property
    def is_changing(self) -> bool:
        """True while ranks wait for each other, to go on without some."""
        return self._members.is_changing

    @property
    def joining(self) -> frozenset[int]:
        """The ranks that have not been let in yet."""
        return self._members.joining

    def address_of(self, rank: int) -> str:
        """Returns where a rank would meet others; `""` if it has not said."""
        return self._members.address_of(rank)

    def to_start(self, room: int | None = None) -> tuple[int, ...]:
        """Returns the numbers of processes to start that join the job.

        Args:
            room: Integer, the most that can be started. `None` for any number.
        """
        return () if self._ending.begun else self._members.to_start(room)

    def leave(self, ranks: Sequence[int]) -> None:
        """Lets ranks leave after their step, and ends them then."""
        for rank in ranks:
            if self._members.is_joining(rank):
                self._kill(rank)
        self._members.leave(ranks)

    def goes_on_without(self, ranks: Sequence[int]) -> bool:
        """Returns whether others go on if these ranks are killed."""
        return not self._members.why_over(ranks, "")

    def on_failed_start(self, number: int, why: str) -> None:
        """Takes note that a process cannot start that was to join."""
        say(f"rank {number}, which was to join, cannot start: {why}")
        self._members.on_end([number])

    def take_joined(self) -> list[int]:
        """Returns the ranks that have been let in since the last call."""
        return self._members.take_joined()

    def is_joining(self, rank: int) -> bool:
        """Returns whether a rank has not been let in yet."""
        return self._members.is_joining(rank)

    def on_end_of_joiner(self, end: RankEnd) -> None:
        """Takes note that a process has ended that was to join."""
        if not (self._ending.begun or self._members.in_vain() or end.lost):
            say(f"rank {end.rank}, which was to join, {end.describe()}")
        self._members.on_end([end.rank], why=end.lost)

    def why_others_end(self, ends: Sequence[RankEnd]) -> str:
        """Returns why the others do not go on without ranks that have ended.

        They do if these were killed, or lost with their host, which is the
        empty string. A rank that has failed by itself would fail elsewhere,
        too.
        """
        for end in ends:
            failed = end.returncode >= 0 and not end.lost
            if failed or self._ending.begun:
                return f"rank {end.rank} has failed"
        was, its = ("was", "its") if len(ends) == 1 else ("were", "their")
        how = f"lost with {its} host" if ends[0].lost else "killed"
        return self._members.why_over(
            [end.rank for end in ends], f"{was} {how}"
        )

    def on_end(self, ends: Sequence[RankEnd], others_end: str) -> None:
        """Takes note that ranks have ended, all alike.

        Args:
            ends: Sequence of `RankEnd`s.
            others_end: String, what `why_others_end` has returned.
        """
        if not others_end:
            # What they have started, such as processes that read their data.
            for end in ends:
                self._kill(end.rank)
        elif ends[0].returncode != 0:
            if ends[0].lost and not self._ending.begun:
                # The others are not left the time to do so.
                say(others_end)
            self._members.end(others_end)
        if ends[0].returncode == 0:
            self._members.on_leave(ends[0].rank)
        else:
            lost = f"rank {ends[0].rank} was lost {ends[0].lost}"
            self._members.on_end(
                [end.rank for end in ends], why=lost if ends[0].lost else ""
            )

    def follow(self) -> None:
        """Ends what is to end by now. Call it whenever something happened."""
        for rank in self._members.take_left():
            self._kill(rank)
        for rank in self._members.take_silent():
            say(
                f"rank {rank} does not answer, and the others wait for it:"
                " killed"
            )
            self._kill(rank)
        for rank in self._members.in_vain() - self._killed:
            # They wait to join others, and will not be let in.
            self._killed.add(rank)
            self._kill(rank)
        if reason := self._members.take_end():
            say(reason)
            self._ending.on_failure()
            self._members.end(reason)
