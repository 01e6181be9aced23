"""Deals the batches of an epoch out to the ranks of a job.

A *lease* is a batch that a rank has taken to train on. All ranks deal all
leases by the same rule, so nobody is asked while no rank is lost. When the job
has lost one, the ranks that are left know what each of them has in hand, and
how the step that was under way has ended: what it has not trained on goes to
those who have nothing in hand.

Steps are numbered by *rounds*, in each of which every rank takes one lease.
When a job loses a rank, those that are left are in the same round or, the first
of them, in the next one: a step counts only once all have asked for that.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

END = -1
"""Dealt to all members when there is nothing left of the epoch."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """The members of a job, and what they had in hand when it began.

    Attributes:
        number: Integer.
        members: The members, in the order of their ranks.
        in_hand: By member, the round in which it took its last lease, and
            that lease.
    """

    number: int
    members: Sequence[int]
    in_hand: Mapping[int, tuple[int, int]] = dataclasses.field(
        default_factory=dict
    )


class Leases:
    """The leases of one member. The others deal alike.

    Args:
        member: Integer, this member.
        generation: The present `Generation`.
        pad: Boolean, whether members for whom nothing is left in the last
            round of an epoch take batches from its start again. Otherwise what
            is left then is dropped.
    """

    def __init__(
        self, member: int, generation: Generation, *, pad: bool
    ) -> None:
        self._member = member
        self._generation = generation
        self._pad = pad
        self._round = 0
        self._order: Sequence[int] = ()
        # What nobody had taken when the round began, in its order.
        self._free: deque[int] = deque()
        # In this round, by the number of the generation.
        self._deals: dict[int, dict[int, int]] = {}

    @property
    def generation(self) -> Generation:
        """The last generation that was added."""
        return self._generation

    @property
    def round(self) -> int:
        """The number of the present round."""
        return self._round

    @property
    def free(self) -> Sequence[int]:
        """The batches that nobody had taken when the round began."""
        return tuple(self._free)

    def go_on(
        self, number: int, order: Sequence[int], free: Sequence[int]
    ) -> None:
        """Takes over where the others are between two rounds.

        Args:
            number: Integer, the number of the last round.
            order: As in `begin_epoch`.
            free: The batches of it that nobody has taken.
        """
        self._round = number
        self.begin_epoch(order)
        self._free = deque(free)

    def begin_epoch(self, order: Sequence[int]) -> None:
        """Begins to deal the leases of an epoch.

        Args:
            order: The numbers of all batches, in the order of the epoch.
        """
        self._order = order
        self._free = deque(order)
        self._deals = {}

    def add(self, generation: Generation) -> None:
        """Takes note of a generation that has begun in the present round."""
        self._generation = generation
        if self._deals:
            self._deals[generation.number] = self._deal()

    def take(self) -> int:
        """Returns the lease of this member in the next round, or `END`."""
        self._round += 1
        deal = self._deal()
        self._deals = {self._generation.number: deal}
        return deal[self._member]

    def give_back(self) -> None:
        """Undoes the last `take`."""
        self._round -= 1
        self._deals = {}

    def end(self, trained_in: int | None) -> None:
        """Takes note of the end of the step of this round.

        Args:
            trained_in: Integer, the generation whose members have trained on
                their leases, or `None` if the step was discarded.
        """
        trained: set[int] = set()
        if trained_in is not None and self._deals:
            last = list(self._deals.values())[-1]
            trained.update(self._deals.get(trained_in, last).values())
        self._deals = {}
        left = []
        while trained and self._free:
            lease = self._free.popleft()
            if lease in trained:
                trained.discard(lease)
            else:
                left.append(lease)
        self._free.extendleft(reversed(left))

    def following(self) -> int | None:
        """Returns the lease of the next round, if nothing happens until then.

        It is `None` near the end of an epoch.
        """
        members = self._generation.members
        ahead = len(members) + members.index(self._member)
        front = list(islice(self._free, ahead + 1))
        return front[ahead] if len(front) > ahead else None

    def _deal(self) -> dict[int, int]:
        in_hand = {
            member: lease
            for member, (number, lease) in self._generation.in_hand.items()
            if number == self._round
        }
        kept = set(in_hand.values())
        members = self._generation.members
        lacking = [each for each in members if each not in in_hand]
        front = islice(self._free, len(members) + len(kept))
        free = [each for each in front if each not in kept][: len(lacking)]
        is_over = not free or (len(free) < len(lacking) and not self._pad)
        if END in kept or (is_over and not kept):
            return dict.fromkeys(members, END)
        padding = [
            self._order[index % len(self._order)]
            for index in range(len(lacking) - len(free))
        ]
        dealt = zip(lacking, [*free, *padding], strict=True)
        return {**in_hand, **dict(dealt)}
