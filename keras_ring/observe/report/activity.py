"""Measures how ranks spent each step: data, checkpoints, compute and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from keras_ring.observe.report.steps import Steps, Times
from keras_ring.observe.timeline.model import (
    Phase,
    RankTimeline,
    Spans,
    Timeline,
)

# Activities of a program other than computing.
PROGRAM = {
    "data": Phase.DATA,
    "checkpoint": Phase.CHECKPOINT,
    "evaluate": Phase.EVALUATE,
    "predict": Phase.PREDICT,
}
CORE = (
    Phase.NEGOTIATE,
    Phase.QUEUE,
    Phase.EXECUTE,
    Phase.WAIT,
    Phase.PACK,
    Phase.REDUCE,
    Phase.UNPACK,
    Phase.CALLBACK,
)


@dataclass(frozen=True)
class Activity:
    """Times in ns, all of them by rank and step.

    Args:
        duration: Duration of the step without evaluation and prediction.
        program: Times of activities, by the keys of `PROGRAM`.
        submitted: Time since the timeline's begin at which the last tensor of
            the step was submitted. Before it the program computes, after it
            the program only waits.
        communication: Time in which buckets ran.
        exposed: Time from `submitted` until the last bucket was done.
        hidden: Part of `communication` before `submitted` and after the
            program entered the step (`judge.hidden_share`).
        core: Sums over tensors or buckets, by phase.
    """

    duration: Times
    program: Mapping[str, Times]
    submitted: Times
    communication: Times
    exposed: Times
    hidden: Times
    core: Mapping[Phase, Times]

    @property
    def waiting(self) -> Times:
        """The part of `exposed` until the last rank is ready.

        The last rank does not wait for others, so its exposed time is that of
        the transfer alone, and the smallest of all ranks.
        """
        waiting: Times = self.exposed - np.fmin.reduce(self.exposed, axis=0)
        return waiting

    @property
    def compute(self) -> Times:
        """The rest of `duration`, in which the program computes."""
        rest = self.duration - self.program["data"] - self.exposed
        return np.maximum(rest - self.program["checkpoint"], 0)


def measure(timeline: Timeline, steps: Steps) -> Activity:
    """Returns the activity of each rank in each step."""
    base = timeline.begin_ns
    shape = (len(timeline.ranks), steps.count)
    program = {key: np.zeros(shape) for key in PROGRAM}
    core = {phase: np.zeros(shape) for phase in CORE}
    submitted, communication, exposed, hidden = (
        np.full(shape, np.nan) for _ in range(4)
    )
    for row, rank in enumerate(timeline.ranks):
        for key, phase in PROGRAM.items():
            program[key][row] = steps.sum(row, rank.of(phase), base)
        for phase in CORE:
            core[phase][row] = steps.sum(row, rank.of(phase), base)
        submitted[row] = _submitted(rank, row, steps, base)
        _communicate(
            rank.of(Phase.EXECUTE),
            row,
            steps,
            base,
            submitted[row],
            (communication[row], exposed[row], hidden[row]),
        )
    absent = np.isnan(steps.end)
    for times in (communication, exposed, hidden):
        times[absent] = np.nan
    duration = steps.end - steps.begin
    duration = duration - program["evaluate"] - program["predict"]
    return Activity(
        np.maximum(duration, 0),
        program,
        submitted,
        communication,
        exposed,
        hidden,
        core,
    )


def _submitted(rank: RankTimeline, row: int, steps: Steps, base: int) -> Times:
    begin = (rank.of(Phase.NEGOTIATE)["begin"] - base).astype(float)
    return steps.last(row, begin, begin)


def _communicate(
    spans: Spans,
    row: int,
    steps: Steps,
    base: int,
    submitted: Times,
    results: tuple[Times, Times, Times],
) -> None:
    communication, exposed, hidden = results
    begin, end = ((spans[key] - base).astype(float) for key in ("begin", "end"))
    # Small buckets run on another thread: overlapping times count once.
    covered = np.maximum.accumulate(end) if len(end) else end
    begin = np.maximum(begin, np.concatenate([[-np.inf], covered[:-1]]))[
        : len(end)
    ]
    length = np.maximum(end - begin, 0)
    index = steps.index(row, begin)
    communication[:] = np.bincount(index, length, steps.count + 1)[:-1]
    limit = np.append(submitted, np.nan)[index]
    entered = np.append(steps.entered[row], np.nan)[index]
    until = np.minimum(limit, begin + length)
    early = np.nan_to_num(np.maximum(until - np.maximum(begin, entered), 0))
    hidden[:] = np.bincount(index, early, steps.count + 1)[:-1]
    done = steps.last(row, begin, end)
    exposed[:] = np.maximum(np.nan_to_num(done - submitted), 0)
