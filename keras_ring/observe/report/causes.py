"""Finds the causes of long steps, and the time that each of them has cost."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from keras_ring.observe.judge import is_most, is_often_last
from keras_ring.observe.report.analysis import Analysis
from keras_ring.observe.report.lateness import CAUSES
from keras_ring.observe.report.waits import slow_peer

# A bucket of fewer bytes takes as long as an empty one (docs/performance.md).
_TINY_BYTES = 64 << 10
_MANY_BUCKETS = 8
_HALF = 0.5


class Kind(enum.Enum):
    """Kind of a cause."""

    DATA = "data"
    CHECKPOINT = "checkpoint"
    EVALUATE = "evaluate"
    COMPUTE = "compute"
    LINK = "link"
    UNFUSED = "unfused"
    TURNS = "turns"


@dataclass(frozen=True)
class Cause:
    """A cause of lost time in steps.

    Args:
        kind: Kind of the cause.
        lost: Share of the time of all steps that was lost.
        rank: Index of the rank that caused it, or `None` for all ranks.
    """

    kind: Kind
    lost: float
    rank: int | None = None


def find_causes(analysis: Analysis) -> list[Cause]:
    """Returns the causes of lost time, the most expensive first."""
    total = analysis.total
    if not total:
        return []
    found = _late_ranks(analysis)
    for key in ("data", "checkpoint"):
        times = analysis.usual(analysis.activity.program[key])
        everywhere = float(np.median(times, axis=0).sum())
        found.append(Cause(Kind(key), everywhere / total))
    exposed = analysis.usual(analysis.activity.exposed)
    # The exposed time of the last rank, which did not wait for others.
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
    """Returns the causes for which ranks waited for a late one."""
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
    """Returns whether a rank is last clearly more often than others.

    Only those steps count in which this cause made a rank late.
    """
    lateness, usual = analysis.lateness, analysis.steps.usual
    mainly = lateness.parts[name][usual] > lateness.late[usual] / 2
    last = lateness.last[usual][mainly]
    share = float(np.mean(last == rank)) if len(last) else 0.0
    return is_often_last(share, len(analysis.timeline.ranks))


def _is_one_slow(analysis: Analysis, lost: Mapping[int, float]) -> bool:
    """Returns whether one rank computes more slowly than the others.

    That is so if most of the lost time is due to this rank, and if slower
    computing explains most of its lateness in the steps in which it was last.
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
        # There are no times to compare.
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
