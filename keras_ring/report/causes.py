"""What made the steps of a job longer than they had to be, by what it cost."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from keras_ring.live.judge import is_most, is_often_last
from keras_ring.report.analysis import Analysis
from keras_ring.report.lateness import CAUSES
from keras_ring.report.waits import slow_peer

# A bucket of fewer bytes takes as long as one of none (docs/performance.md).
_TINY_BYTES = 64 << 10
_MANY_BUCKETS = 8
_HALF = 0.5


class Kind(enum.Enum):
    """What may take time."""

    DATA = "data"
    CHECKPOINT = "checkpoint"
    EVALUATE = "evaluate"
    COMPUTE = "compute"
    LINK = "link"
    UNFUSED = "unfused"
    TURNS = "turns"


@dataclass(frozen=True)
class Cause:
    """Something that took time from the steps.

    Args:
        kind: What it is.
        lost: The share of all steps' time that it took.
        rank: On which rank; None on all of them.
    """

    kind: Kind
    lost: float
    rank: int | None = None


def find_causes(analysis: Analysis) -> list[Cause]:
    """Returns what took time, the most expensive first."""
    total = analysis.total
    if not total:
        return []
    found = _late_ranks(analysis)
    for key in ("data", "checkpoint"):
        times = analysis.usual(analysis.activity.program[key])
        everywhere = float(np.median(times, axis=0).sum())
        found.append(Cause(Kind(key), everywhere / total))
    exposed = analysis.usual(analysis.activity.exposed)
    # Of the last rank, which has waited for nobody.
    moving = float(np.nansum(np.fmin.reduce(exposed, axis=0)))
    if _is_unfused(analysis):
        found.append(Cause(Kind.UNFUSED, moving / total))
    else:
        slow = slow_peer(analysis.waits)
        rank = None
        if slow is not None and slow[1] > _HALF:
            rank = analysis.timeline.ranks[slow[0]].rank
        found.append(Cause(Kind.LINK, moving / total, rank))
    return sorted(found, key=lambda cause: -cause.lost)


def _late_ranks(analysis: Analysis) -> list[Cause]:
    """Returns what made the others wait for a rank."""
    lateness, usual = analysis.lateness, analysis.steps.usual
    found = []
    for name in CAUSES:
        lost: dict[int, float] = defaultdict(float)
        for rank, time in zip(
            lateness.last[usual].tolist(),
            lateness.parts[name][usual].tolist(),
            strict=True,
        ):
            if rank >= 0:
                lost[rank] += time / analysis.total
        named = [rank for rank in lost if _is_named(analysis, name, rank)]
        if name == "compute" and not _is_one_slow(analysis, lost):
            named = []
        found += [Cause(Kind(name), lost.pop(rank), rank) for rank in named]
        if lost:
            found.append(Cause(Kind.TURNS, sum(lost.values())))
    return found


def _is_named(analysis: Analysis, name: str, rank: int) -> bool:
    """Whether a rank is last clearly more often than others are.

    Of the steps that somebody was late for because of that.
    """
    lateness, usual = analysis.lateness, analysis.steps.usual
    mainly = lateness.parts[name][usual] > lateness.late[usual] / 2
    last = lateness.last[usual][mainly]
    share = float(np.mean(last == rank)) if len(last) else 0.0
    return is_often_last(share, len(analysis.timeline.ranks))


def _is_one_slow(analysis: Analysis, lost: Mapping[int, float]) -> bool:
    """Whether one rank computes more slowly than the others.

    It costs most of what all do, and where it was last its own computing took
    longer than that of the others by most of what it was late.
    """
    if not is_most(list(lost.values())):
        return False
    rank = max(lost, key=lambda each: lost[each])
    steps = analysis.lateness.because_of(rank, "compute")
    steps[: analysis.steps.usual.start] = False
    compute = analysis.activity.compute[:, steps]
    mine = np.array([each.rank == rank for each in analysis.timeline.ranks])
    own, others = (
        each[~np.isnan(each)] for each in (compute[mine], compute[~mine])
    )
    if not own.size or not others.size:
        # There is nobody to compare it with.
        return True
    more = np.median(own) - np.median(others)
    return bool(more > _HALF * np.median(analysis.lateness.late[steps]))


def _is_unfused(analysis: Analysis) -> bool:
    fusion = analysis.fusion
    return (
        fusion is not None
        and fusion.per_step >= _MANY_BUCKETS
        and fusion.median_bytes < _TINY_BYTES
    )
