"""Finds the steps of a job, and assigns spans of each rank to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from keras_ring.observe.timeline.model import (
    Phase,
    RankTimeline,
    Spans,
    Timeline,
)

Times = npt.NDArray[np.float64]
"""Times in ns since the timeline's begin; NaN if there is none."""
Indices = npt.NDArray[np.int64]

# The first step traces functions and allocates; the others are alike.
_WARMUP = 1
_ENOUGH = 3


@dataclass(frozen=True)
class Steps:
    """The begins and ends of steps on each rank.

    A step begins when the one before it has ended, so the work of a program
    between two steps, such as fetching data and saving, belongs to the later
    one.

    Args:
        numbers: Numbers of the steps.
        begin: Begins, by rank and step.
        entered: Times at which the program entered the steps, after its work
            between two steps; by rank and step.
        end: Ends, by rank and step.
    """

    numbers: Indices
    begin: Times
    entered: Times
    end: Times

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.numbers)

    @property
    def usual(self) -> slice:
        """The steps after the warm-up, as a slice."""
        return slice(_WARMUP if self.count > _ENOUGH else 0, None)

    def index(
        self, row: int, times: Times, side: Literal["left", "right"] = "right"
    ) -> Indices:
        """Returns the indices of the steps of a rank at given times.

        Args:
            row: Index of the rank, in the order of the timeline.
            times: Times to look up.
            side: Whether the moment between two steps belongs to the `"left"`
                one, as for ends, or to the `"right"` one.

        Returns:
            An array of indices; `count` for times after the last step.
        """
        ends = self.end[row]
        # A rank may lack steps at the begin and at the end, but not between.
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
        """Returns the total time of a rank's spans in each step."""
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
        """Returns the sum of the values in each step."""
        index = self.index(row, at, side)
        sums = np.bincount(index, values, self.count + 1)[: self.count]
        return sums.astype(np.float64)

    def last(self, row: int, at: Times, values: Times) -> Times:
        """Returns the largest value in each step; NaN if there is none."""
        found = np.full(self.count + 1, -np.inf)
        np.maximum.at(found, self.index(row, at), values)
        found[np.isinf(found)] = np.nan
        return found[: self.count]


_Row = tuple[Indices, Times, Times]


def find_steps(timeline: Timeline) -> Steps:
    """Returns the steps that a program has marked, or else recurring ones.

    A program that marks no steps reduces the same tensors in each step. A step
    ends when the bucket of the last of these tensors is done.
    """
    base = timeline.begin_ns
    rows = [_named(rank, base) for rank in timeline.ranks]
    if not any(len(numbers) for numbers, _, _ in rows):
        rows = _recurring(timeline)
    numbers = np.unique(np.concatenate([row[0] for row in rows]))
    shape = (len(rows), len(numbers))
    begin, entered, end = (np.full(shape, np.nan) for _ in range(3))
    for row, (own, begins, ends) in enumerate(rows):
        column = np.searchsorted(numbers, own)
        entered[row, column], end[row, column] = begins, ends
        before = np.concatenate([begins[:1], ends[:-1]])
        # A step must not span a pause of the recording.
        follows = np.diff(own, prepend=own[:1]) == 1
        begin[row, column] = np.where(follows, before, begins)
    return Steps(numbers, begin, entered, end)


def _named(rank: RankTimeline, base: int) -> _Row:
    spans = rank.of(Phase.STEP)
    numbers = spans["value"].astype(np.int64)
    if len(numbers) and not (np.diff(numbers) > 0).all():
        # Steps may be counted anew in each epoch.
        numbers = np.arange(len(spans))
    begin, end = (spans[key] - base for key in ("begin", "end"))
    return numbers, begin.astype(float), end.astype(float)


def _recurring(timeline: Timeline) -> list[_Row]:
    most = max(timeline.ranks, key=lambda rank: len(rank.spans))
    name = _last_of_step(most)
    ends = [_ends(rank, name) for rank in timeline.ranks]
    # The numbers are the same on all ranks, whenever each began to record.
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
    # Decisions are numbered in order.
    last = often[np.argmax(spans["tag"][first[often]])]
    return rank.name_of(int(names[last]))


def _ends(rank: RankTimeline, name: str) -> tuple[Indices, Indices]:
    """Returns the numbers and ends of the buckets that contain a tensor."""
    spans, runs = rank.of(Phase.NEGOTIATE), rank.of(Phase.EXECUTE)
    numbers = [
        number for number in rank.names if name and rank.names[number] == name
    ]
    tags = spans["tag"][np.isin(spans["name"], numbers)]
    runs = runs[np.isin(runs["tag"], tags)]
    runs = runs[np.argsort(runs["end"])]
    return runs["tag"].astype(np.int64), runs["end"]
