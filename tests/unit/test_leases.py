"""What is dealt out when ranks are lost and come: none twice, or left out."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_ring.keras.data.leases import END, Generation, Leases


class Job:
    """Members that train in steps, and are lost and come as `draw` decides."""

    def __init__(self, draw, size, order, *, pad):
        self._draw = draw
        self._order, self._pad = order, pad
        self.most = size
        self.members = list(range(size))
        self._number = 0
        first = Generation(0, tuple(self.members))
        self.leases = {m: Leases(m, first, pad=pad) for m in self.members}
        # What each has told.
        self._told = {}
        self.trained = []
        self.losses = 0
        for each in self.leases.values():
            each.begin_epoch(order)

    def _take(self, member):
        leases = self.leases[member]
        lease = leases.take()
        self._told[member] = (leases.round, lease)
        return lease

    def _lose(self):
        """Loses some, but one; the others begin another generation."""
        lost = self._draw(
            st.lists(
                st.sampled_from(self.members),
                unique=True,
                min_size=1,
                max_size=len(self.members) - 1,
            )
        )
        self.members = [m for m in self.members if m not in lost]
        self._number += 1
        self.losses += 1
        told = {m: self._told[m] for m in self.members if m in self._told}
        return Generation(self._number, tuple(self.members), told)

    def step(self):
        """Trains a step. Returns false at the end of the epoch."""
        before = list(self.members)
        in_hand, late = {}, []
        can_lose = len(before) > 1
        if can_lose and self._draw(st.booleans()):
            # Is lost before all have taken a lease.
            late = self._draw(st.lists(st.sampled_from(before), unique=True))
        for member in before:
            if member not in late:
                in_hand[member] = self._take(member)
        generations, trained_in = [], self._number
        if late:
            generations.append(self._lose())
            trained_in = self._number
            for member in self.members:
                # These take their lease in the new generation.
                self.leases[member].add(generations[-1])
                if member in late:
                    in_hand[member] = self._take(member)
        ends = {
            lease == END for m, lease in in_hand.items() if m in self.members
        }
        assert len(ends) == 1
        if ends == {True}:
            return False
        with_shares = list(self.members)
        if len(self.members) > 1 and self._draw(st.booleans()):
            # In the midst of the step, which counts with the share of the
            # lost, without it, or not at all.
            generation = self._lose()
            for member in self.members:
                self.leases[member].add(generation)
            how = self._draw(st.sampled_from(["with", "without", "not"]))
            if how == "without":
                trained_in = self._number
                with_shares = list(self.members)
            elif how == "not":
                trained_in = None
        if trained_in is not None:
            self.trained += [in_hand[member] for member in with_shares]
        for member in self.members:
            self.leases[member].end(trained_in)
        if self._draw(st.integers(0, 7)) == 0:
            self._let_in(self._draw(st.integers(1, 2)))
        return True

    def _let_in(self, count):
        """Others come in between two steps."""
        ranks = self.leases[self.members[0]]
        new = range(max(self.leases) + 1, max(self.leases) + 1 + count)
        told = {m: self._told[m] for m in self.members if m in self._told}
        self.members += new
        self._number += 1
        generation = Generation(self._number, tuple(self.members), told)
        for member in self.members:
            if member not in new:
                self.leases[member].add(generation)
                continue
            leases = Leases(member, generation, pad=self._pad)
            leases.go_on(ranks.round, self._order, ranks.free)
            self.leases[member] = leases
        self.most = max(self.most, len(self.members))


@settings(max_examples=400, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(0, 17), st.booleans())
def test_each_batch_is_trained_on_once(data, size, batches, pad):
    order = data.draw(st.permutations(range(batches)))
    job = Job(data.draw, size, order, pad=pad)
    while job.step():
        pass
    counts = Counter(job.trained)
    assert set(counts) <= set(range(batches))
    again = sum(counts.values()) - len(counts)
    left_out = batches - len(counts)
    if pad:
        assert left_out == 0
    else:
        assert left_out < job.most
    # In the last round, and in one more for each time that a rank was lost in
    # it, which had the last batch.
    assert again < job.most * (1 + job.losses)


@pytest.mark.parametrize("pad", [True, False])
def test_is_todays_shard_if_nobody_is_lost(pad):
    members = (0, 1, 2)
    first = Generation(0, members)
    all_leases = [Leases(m, first, pad=pad) for m in members]
    for _ in range(2):
        taken = [[], [], []]
        for each in all_leases:
            each.begin_epoch(range(7))
        for _ in itertools.count():
            dealt = [each.take() for each in all_leases]
            if END in dealt:
                assert dealt == [END] * 3
                break
            for lease, mine in zip(dealt, taken, strict=True):
                mine.append(lease)
            expected = [dealt[0] + 3 + r for r in range(3)]
            following = [each.following() for each in all_leases]
            assert following == [n if n < 7 else None for n in expected]
            for each in all_leases:
                each.end(0)
        last = [[6], [0], [1]] if pad else [[], [], []]
        assert taken == [[r, r + 3, *last[r]] for r in range(3)]
        for each in all_leases:
            each.end(0)


def test_a_lease_can_be_given_back():
    leases = Leases(0, Generation(0, (0, 1)), pad=True)
    leases.begin_epoch(range(4))
    assert (leases.take(), leases.round) == (0, 1)
    leases.give_back()
    # Meanwhile member 1 was lost, which had nothing in hand.
    leases.add(Generation(1, (0,), {0: (0, END)}))
    assert (leases.take(), leases.round) == (0, 1)
    leases.end(1)
    assert leases.take() == 1
