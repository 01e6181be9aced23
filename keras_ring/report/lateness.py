"""Who was last in which step, by how much, and what kept it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_ring._timeline.model import Phase, Timeline
from keras_ring.report.activity import Activity
from keras_ring.report.steps import Indices, Steps, Times

CAUSES = ("data", "checkpoint", "evaluate", "compute")


@dataclass(frozen=True)
class Lateness:
    """Who the ranks waited for.

    Args:
        last: By step, the rank that was last; -1 if nobody was.
        late: By step, how long after the first it came, in ns.
        parts: By cause and step, what of that is due to it.
    """

    last: Indices
    late: Times
    parts: dict[str, Times]

    def because_of(self, rank: int, cause: str) -> npt.NDArray[np.bool_]:
        """Returns in which steps a rank was last mainly because of that."""
        mainly: npt.NDArray[np.bool_] = self.parts[cause] > self.late / 2
        chosen: npt.NDArray[np.bool_] = mainly & (self.last == rank)
        return chosen

    def share(self, rank: int, usual: slice) -> float:
        """Returns in which share of the steps a rank was last."""
        last = self.last[usual]
        return float(np.mean(last == rank)) if len(last) else 0.0


def find_lateness(
    timeline: Timeline, steps: Steps, activity: Activity
) -> Lateness:
    """Returns for each step who was last.

    A step has many buckets, for each of which somebody was last. A rank that is
    late is so for all that follow, so the largest lateness counts, not the sum.
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
            # All ranks say the same; some may have lost a part of it.
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
    """Returns by how much the last rank's exceeds what others have."""
    step = np.arange(times.shape[1])
    own: Times = np.where(row < 0, 0.0, times[row, step])
    if len(times) < 2:
        return own
    # The median of the others: without the last rank's own, which may be of
    # two only.
    others = times.copy()
    others[row, step] = np.nan
    excess: Times = own - np.nanmedian(others, axis=0)
    return np.where(row < 0, 0.0, excess)
