"""Finds which ranks wait for which, before and within collectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keras_ring.observe.report.activity import Activity
from keras_ring.observe.report.lateness import Lateness
from keras_ring.observe.report.steps import Steps, Times
from keras_ring.observe.timeline.model import Phase, Timeline


@dataclass(frozen=True)
class Waits:
    """Seconds that ranks waited, by waiting rank and awaited rank.

    Both are indices in the order of the timeline's ranks.

    Args:
        start: Seconds until the last rank was ready.
        within: Seconds of waiting for bytes of another rank while a bucket ran.
    """

    start: Times
    within: Times


def find_waits(
    timeline: Timeline, steps: Steps, activity: Activity, lateness: Lateness
) -> Waits:
    """Returns the waits between ranks in the usual steps."""
    ranks = [rank.rank for rank in timeline.ranks]
    row_of = {rank: row for row, rank in enumerate(ranks)}
    start = np.zeros((len(ranks), len(ranks)))
    within = np.zeros_like(start)
    waiting = np.nan_to_num(activity.waiting)
    for step in range(steps.count)[steps.usual]:
        row = row_of.get(int(lateness.last[step]))
        if row is not None:
            limit = np.minimum(waiting[:, step], lateness.late[step])
            start[:, row] += limit / 1e9
    np.fill_diagonal(start, 0)
    for row, rank in enumerate(timeline.ranks):
        spans = rank.of(Phase.WAIT)
        spans = spans[spans["peer"] >= 0]
        peers, index = np.unique(spans["peer"], return_inverse=True)
        seconds = (spans["end"] - spans["begin"]) / 1e9
        sums = np.bincount(index, seconds, len(peers))
        for peer, total in zip(peers.tolist(), sums.tolist(), strict=True):
            if peer in row_of:
                within[row, row_of[peer]] += total
    return Waits(start, within)


def slow_peer(waits: Waits) -> tuple[int, float] | None:
    """Returns the rank whose bytes were awaited longest, and its share.

    Args:
        waits: Result of `find_waits`.

    Returns:
        The index of the rank and its share of the waiting time, or `None` if
        it cannot be known: of two ranks, each waits for the other.
    """
    columns = waits.within.sum(axis=0)
    if len(columns) < 3 or not columns.any():
        return None
    row = int(np.argmax(columns))
    return row, float(columns[row] / columns.sum())
