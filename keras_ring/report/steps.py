"""The steps of a job, and what falls into each of them on each rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from keras_ring._timeline.model import Phase, RankTimeline, Spans, Timeline

Times = npt.NDArray[np.float64]
"""In ns, from the timeline's begin on; NaN where there is nothing."""
Indices = npt.NDArray[np.int64]

# The first step traces functions and allocates; the others are alike.
_WARMUP = 1
_ENOUGH = 3


@dataclass(frozen=True)
class Steps:
    """When each rank was in which step.

    A step begins where the one before it has ended, so that what a program does
    between them (it fetches data, it saves) is in the later one.

    Args:
        numbers: Of the steps.
        begin: By rank and step.
        entered: Likewise, when the program came into it, after what it did
            between the two.
        end: Likewise.
    """

    numbers: Indices
    begin: Times
    entered: Times
    end: Times

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.numbers)

    @property
    def usual(self) -> slice:
        """Those that are not the first."""
        return slice(_WARMUP if self.count > _ENOUGH else 0, None)

    def index(
        self, row: int, times: Times, side: Literal["left", "right"] = "right"
    ) -> Indices:
        """Returns into which step of a rank times fall.

        Args:
            row: Of the rank, in the order of the timeline.
            times: When.
            side: Whether the moment between two steps is of the `"left"` one,
                as for what ends then, or of the `"right"` one.

        Returns:
            `count` for what comes after the last step.
        """
        ends = self.end[row]
        # A rank may lack steps at both ends, and none in between.
        known = np.flatnonzero(~np.isnan(ends))
        if not len(known):
            return np.full(len(times), self.count)
        found = np.searchsorted(ends[known], times, side)
        after = found == len(known)
        index: Indices = known[np.minimum(found, len(known) - 1)]
        index[after] = self.count
        before = times < self.begin[row, known[0]]
        index[before & (found == 0)] = self.count
        return index

    def sum(self, row: int, spans: Spans, base: int) -> Times:
        """Returns the time that spans of a rank take in each step."""
        return self.add(
            row,
            (spans["end"] - base).astype(float),
            (spans["end"] - spans["begin"]).astype(float),
            side="left",
        )

    def add(
        self,
        row: int,
        at: Times,
        values: Times,
        side: Literal["left", "right"] = "right",
    ) -> Times:
        """Returns the sum of values in each step."""
        index = self.index(row, at, side)
        sums = np.bincount(index, values, self.count + 1)[: self.count]
        return sums.astype(np.float64)

    def last(self, row: int, at: Times, values: Times) -> Times:
        """Returns the largest of values in each step; NaN where is none."""
        found = np.full(self.count + 1, -np.inf)
        np.maximum.at(found, self.index(row, at), values)
        found[np.isinf(found)] = np.nan
        return found[: self.count]


_Row = tuple[Indices, Times, Times]


def find_steps(timeline: Timeline) -> Steps:
    """Returns the steps that the program has named, or else those that recur.

    A program that names none reduces the same tensors in each step: it ends
    when the bucket of the last of them is done.
    """
    base = timeline.begin_ns
    rows = [_named(rank, base) for rank in timeline.ranks]
    if not any(len(numbers) for numbers, _, _ in rows):
        rows = _recurring(timeline)
    numbers = np.unique(np.concatenate([row[0] for row in rows]))
    shape = (len(rows), len(numbers))
    begin, entered, end = (np.full(shape, np.nan) for _ in range(3))
    for row, (own, begins, ends) in enumerate(rows):
        place = np.searchsorted(numbers, own)
        entered[row, place], end[row, place] = begins, ends
        before = np.concatenate([begins[:1], ends[:-1]])
        # Not over a pause, in which nobody recorded.
        follows = np.diff(own, prepend=own[:1]) == 1
        begin[row, place] = np.where(follows, before, begins)
    return Steps(numbers, begin, entered, end)


def _named(rank: RankTimeline, base: int) -> _Row:
    spans = rank.of(Phase.STEP)
    numbers = spans["value"].astype(np.int64)
    if len(numbers) and not (np.diff(numbers) > 0).all():
        # They may be counted anew in each epoch.
        numbers = np.arange(len(spans))
    begin, end = (spans[key] - base for key in ("begin", "end"))
    return numbers, begin.astype(float), end.astype(float)


def _recurring(timeline: Timeline) -> list[_Row]:
    most = max(timeline.ranks, key=lambda rank: len(rank.spans))
    name = _last_of_step(most)
    ends = [_ends(rank, name) for rank in timeline.ranks]
    # Their numbers are alike on all ranks, whenever each began to record.
    numbers = np.unique(np.concatenate([tags for tags, _ in ends]))
    rows: list[_Row] = []
    for tags, at in ends:
        times = (at - timeline.begin_ns).astype(np.float64)
        own = np.searchsorted(numbers, tags)
        rows.append((own[1:].astype(np.int64), times[:-1], times[1:]))
    return rows


def _last_of_step(rank: RankTimeline) -> str:
    """Returns the last of the tensors that are reduced most often."""
    spans = rank.of(Phase.NEGOTIATE)
    names, first, counts = np.unique(
        spans["name"], return_index=True, return_counts=True
    )
    if not len(names):
        return ""
    often = np.flatnonzero(counts == counts.max())
    # Decisions are numbered in their order.
    last = often[np.argmax(spans["tag"][first[often]])]
    return rank.name_of(int(names[last]))


def _ends(rank: RankTimeline, name: str) -> tuple[Indices, Indices]:
    """Returns numbers and ends of the buckets with a tensor."""
    spans, runs = rank.of(Phase.NEGOTIATE), rank.of(Phase.EXECUTE)
    numbers = [
        number for number in rank.names if name and rank.names[number] == name
    ]
    tags = spans["tag"][np.isin(spans["name"], numbers)]
    runs = runs[np.isin(runs["tag"], tags)]
    runs = runs[np.argsort(runs["end"])]
    return runs["tag"].astype(np.int64), runs["end"]
