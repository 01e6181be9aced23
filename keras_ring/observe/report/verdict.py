"""Summarizes an analysis in at most three sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from keras_ring.observe.judge import MUCH_COMMUNICATION, NOTABLE_SHARE
from keras_ring.observe.report import units
from keras_ring.observe.report.analysis import Analysis
from keras_ring.observe.report.causes import Cause, Kind, find_causes
from keras_ring.observe.report.faults import killed
from keras_ring.observe.report.steps import Times

_ADVICE = {
    Kind.DATA: "cache, prefetch or shard its files, or use"
    " kr.callbacks.InputPipeline to see how fast it could be",
    Kind.CHECKPOINT: "save less often, or in the background",
    Kind.EVALUATE: "evaluate less often, or a part of the data on each rank",
    Kind.COMPUTE: "look for other programs on its cores, or at what"
    " differs on its host",
    Kind.LINK: "look at what lies between the hosts, or send less: compress,"
    " or accumulate gradients over several batches",
    Kind.UNFUSED: "raise KERAS_RING_FUSION_THRESHOLD, or reduce many tensors"
    " by one call",
    Kind.TURNS: "look for what makes steps differ, such as batches of unequal"
    " length",
}


_DOES = {
    Kind.CHECKPOINT: "it writes checkpoints",
    Kind.EVALUATE: "it evaluates",
}


def verdict(analysis: Analysis) -> list[str]:
    """Returns at most three sentences on the speed of a job."""
    dead = killed(analysis.timeline)
    last = []
    if dead:
        are = "has" if len(dead) == 1 else "have"
        which = units.ranks(dead).capitalize()
        last = [
            f"{which} of {analysis.timeline.size} {are} no end of the timeline:"
            " killed, or still running."
        ]
    if not analysis.step_time:
        return ["The timeline has no steps, so nothing can be compared.", *last]
    causes = find_causes(analysis)
    cause = next(filter(_stands_out, causes), None)
    if cause is None:
        return [
            f"Nothing stands out: {_communication(analysis)}.",
            _median_step(analysis),
            *last,
        ]
    share = units.share(min(cause.lost, 1.0))
    return [
        _sentence(analysis, cause),
        f"That is {share} of the time of the steps; {_ADVICE[cause.kind]}.",
        *(last or [_communication(analysis).capitalize() + "."]),
    ]


def _stands_out(cause: Cause) -> bool:
    moves = cause.kind == Kind.LINK
    return cause.lost >= (MUCH_COMMUNICATION if moves else NOTABLE_SHARE)


def _communication(analysis: Analysis) -> str:
    return (
        f"{units.share(analysis.communication_share)} of a step is"
        f" communication, of which {units.share(analysis.hidden_share)} is"
        " hidden behind compute"
    )


def _median_step(analysis: Analysis) -> str:
    size = len(analysis.timeline.ranks)
    return (
        f"The median step takes {units.time(analysis.step_time)} on {size}"
        f" rank{'s' * (size > 1)}."
    )


def _sentence(analysis: Analysis, cause: Cause) -> str:
    if cause.kind == Kind.LINK:
        return _of_links(analysis, cause)
    if cause.kind == Kind.UNFUSED:
        return _of_buckets(analysis)
    if cause.kind == Kind.TURNS:
        late = analysis.usual(analysis.lateness.late)
        return (
            "The ranks take turns at being last, by"
            f" {units.time(float(np.median(late)))} in the median: the time"
            " that they compute varies from step to step."
        )
    if cause.rank is None:
        return _of_all(analysis, cause.kind)
    return _of_late_rank(analysis, cause)


def _of_late_rank(analysis: Analysis, cause: Cause) -> str:
    lateness, usual = analysis.lateness, analysis.steps.usual
    steps = lateness.because_of(cause.rank or 0, cause.kind.value)[usual]
    late = float(np.median(lateness.late[usual][steps]))
    which = f"Rank {cause.rank}"
    hosts = {rank.rank: rank.host for rank in analysis.timeline.ranks}
    if len(analysis.timeline.hosts) > 1:
        which += f" ({hosts.get(cause.rank or 0, 'lost')})"
    return (
        f"{which} was last in {units.share(float(np.mean(steps)))} of the"
        f" steps, by {units.time(late)} in the median: {_why(analysis, cause)}."
    )


def _why(analysis: Analysis, cause: Cause) -> str:
    if cause.kind == Kind.DATA:
        own, others = _of_rank(analysis, cause, analysis.activity.program)
        return (
            f"it waits for its input pipeline ({units.time(own)} per step,"
            f" others {units.time(others)})"
        )
    if cause.kind in _DOES:
        times = analysis.usual(analysis.activity.program[cause.kind.value])
        row = [r.rank for r in analysis.timeline.ranks].index(cause.rank or 0)
        saves = times[row][times[row] > 0]
        count = len(saves)
        return (
            f"{_DOES[cause.kind]} ({count} times in {times.shape[1]} steps,"
            f" {units.time(float(np.median(saves)) if count else 0)} each)"
        )
    own, others = _of_rank(
        analysis, cause, {"compute": analysis.activity.compute}
    )
    return (
        f"it computes more slowly ({units.time(own)} per step, others"
        f" {units.time(others)})"
    )


def _of_rank(
    analysis: Analysis, cause: Cause, times: Mapping[str, Times]
) -> tuple[float, float]:
    """Returns medians of a rank and of the others in steps it was last in."""
    steps = analysis.lateness.because_of(cause.rank or 0, cause.kind.value)
    steps[: analysis.steps.usual.start] = False
    every = times[cause.kind.value][:, steps]
    mine = np.array([r.rank == cause.rank for r in analysis.timeline.ranks])
    own = float(np.nanmedian(every[mine])) if mine.any() else 0.0
    others = float(np.nanmedian(every[~mine])) if (~mine).any() else 0.0
    return own, others


def _of_all(analysis: Analysis, kind: Kind) -> str:
    times = analysis.usual(analysis.activity.program[kind.value])
    middle = np.median(times, axis=0)
    if kind == Kind.DATA:
        return (
            "All ranks wait for their input pipelines,"
            f" {units.time(float(np.median(middle)))} of"
            f" {units.time(analysis.step_time)} per step."
        )
    saves = middle[middle > 0]
    return (
        f"All ranks wait for checkpoints, {len(saves)} in {len(middle)} steps,"
        f" of {units.time(float(np.median(saves)))} each."
    )


def _of_links(analysis: Analysis, cause: Cause) -> str:
    exposed = np.fmin.reduce(analysis.usual(analysis.activity.exposed), axis=0)
    wait = units.time(float(np.median(exposed)))
    fusion = analysis.fusion
    sent = 0.0 if fusion is None else fusion.step_bytes
    busy = float(np.nanmedian(analysis.usual(analysis.activity.communication)))
    speed = units.rate(sent / busy * 1e9 if busy else 0)
    amount = f"{units.num_bytes(sent)} per step, {speed}"
    hosts = {rank.rank: rank.host for rank in analysis.timeline.ranks}
    if cause.rank is not None:
        return (
            f"The link of rank {cause.rank} ({hosts[cause.rank]}) is slow: no"
            " rank is late, and in collectives the others wait for its bytes"
            f" ({wait} per step that nothing hides; {amount})."
        )
    where = (
        "the link between the hosts is what is slow"
        if len(analysis.timeline.hosts) > 1
        else "the bytes take that long on this host"
    )
    return (
        f"Communication takes {wait} of {units.time(analysis.step_time)} per"
        f" step that nothing hides, and no rank is late: {where} ({amount})."
    )


def _of_buckets(analysis: Analysis) -> str:
    fusion = analysis.fusion
    if fusion is None:
        return ""
    return (
        f"Tensors are not fused: a step sends {fusion.per_step:.0f} buckets of"
        f" {units.num_bytes(fusion.median_bytes)} in the median, and each"
        " costs as much as one of many tensors."
    )
