"""Finds the last rank of each step, its lateness, and the causes of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_ring.observe.report.activity import Activity
from keras_ring.observe.report.steps import Indices, Steps, Times
from keras_ring.observe.timeline.model import Phase, Timeline

CAUSES = ("data", "checkpoint", "evaluate", "compute")


@dataclass(frozen=True)
class Lateness:
    """The ranks that the others waited for, by step.

    Args:
        last: By step, the index of the last rank; -1 if there is none.
        late: By step, the time in ns by which the last rank came after the
            first.
        parts: By cause and step, the part of `late` that is due to the cause.
    """

    last: Indices
    late: Times
    parts: dict[str, Times]

    def because_of(self, rank: int, cause: str) -> npt.NDArray[np.bool_]:
        """Returns a mask of the steps in which a cause made a rank last."""
        mainly: npt.NDArray[np.bool_] = self.parts[cause] > self.late / 2
        chosen: npt.NDArray[np.bool_] = mainly & (self.last == rank)
        return chosen

    def share(self, rank: int, usual: slice) -> float:
        """Returns the share of the usual steps in which a rank was last."""
        last = self.last[usual]
        return float(np.mean(last == rank)) if len(last) else 0.0


def find_lateness(
    timeline: Timeline, steps: Steps, activity: Activity
) -> Lateness:
    """Returns the last rank of each step, and its lateness.

    A step has many buckets, and each of them has a last rank. A late rank is
    late for all following buckets, so the largest lateness counts, not the sum.
    """
    last = np.full(steps.count, -1)
    late = np.zeros(steps.count)
    for row, rank in enumerate(timeline.ranks):
        spans = rank.instants(Phase.LATE)
        at = (spans["begin"] - timeline.begin_ns).astype(float)
        index = steps.index(row, at)
        for step, peer, value in zip(
            index.tolist(),
            spans["peer"].tolist(),
            spans["value"].tolist(),
            strict=True,
        ):
            # All ranks record the same, but some may have lost records.
            if step < steps.count and value > late[step]:
                last[step], late[step] = peer, value
    return Lateness(last, late, _parts(timeline, activity, last, late))


def _parts(
    timeline: Timeline, activity: Activity, last: Indices, late: Times
) -> dict[str, Times]:
    rows = {rank.rank: row for row, rank in enumerate(timeline.ranks)}
    row = np.array([rows.get(rank, -1) for rank in last.tolist()], np.int64)
    rest = late.copy()
    parts = {}
    for cause in CAUSES[:-1]:
        more = np.clip(_excess(activity.program[cause], row), 0, rest)
        parts[cause] = more
        rest = rest - more
    parts[CAUSES[-1]] = rest
    return parts


def _excess(times: Times, row: npt.NDArray[np.int64]) -> Times:
    """Returns by how much the last rank's times exceed those of the others."""
    step = np.arange(times.shape[1])
    own: Times = np.where(row < 0, 0.0, times[row, step])
    if len(times) < 2:
        return own
    # The median of the others, without the last rank: there may be only two.
    others = times.copy()
    others[row, step] = np.nan
    excess: Times = own - np.nanmedian(others, axis=0)
    return np.where(row < 0, 0.0, excess)
