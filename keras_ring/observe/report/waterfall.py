"""The median step of all ranks, as rows of states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_ring.observe.report.activity import PROGRAM
from keras_ring.observe.report.analysis import Analysis
from keras_ring.observe.report.svg import COLORS
from keras_ring.observe.timeline.model import Phase, Spans

# States of a rank and their colors. Numbers of states are indices in here.
STATES = (
    ("compute", COLORS["compute"]),
    ("data", COLORS["data"]),
    ("checkpoint", COLORS["checkpoint"]),
    ("evaluate, predict", COLORS["other"]),
    ("waits for other ranks", COLORS["wait"]),
    ("communication", COLORS["communication"]),
)
_PROGRAM = {"data": 1, "checkpoint": 2, "evaluate": 3, "predict": 3}
_WAIT, _COMMUNICATION = 4, 5
_COLUMNS = 1200
_OFTEN_LAST = 5


@dataclass(frozen=True)
class Waterfall:
    """A step in a form that can be drawn.

    Args:
        number: Number of the step.
        length: Duration of the step in ns.
        states: Indices in `STATES`, by rank and column.
        buckets: By rank, begins and ends in ns of the buckets that ran while
            the program computed.
    """

    number: int
    length: float
    states: npt.NDArray[np.int8]
    buckets: list[list[tuple[float, float]]]


def median_step(analysis: Analysis) -> int:
    """Returns the index of a step of median duration."""
    times = analysis.step_times
    offset = analysis.steps.count - len(times)
    return offset + int(np.argsort(times)[len(times) // 2])


def outstanding(analysis: Analysis) -> list[int]:
    """Returns the indices of the ranks to look at first.

    These are the ranks that were last most often, and one with a median
    waiting time.
    """
    usual = analysis.steps.usual
    shares = [
        analysis.lateness.share(rank.rank, usual)
        for rank in analysis.timeline.ranks
    ]
    often = np.argsort(shares)[::-1][:_OFTEN_LAST]
    waits = analysis.usual(analysis.activity.exposed)
    usual_one = int(np.argsort(np.nanmean(waits, axis=1))[len(waits) // 2])
    return sorted({int(row) for row in often if shares[row]} | {usual_one})


def waterfall(analysis: Analysis) -> Waterfall:
    """Returns the median step on all ranks."""
    step = median_step(analysis)
    steps = analysis.steps
    begin = float(np.nanmin(steps.begin[:, step]))
    length = float(np.nanmax(steps.end[:, step])) - begin
    states = np.zeros((len(analysis.timeline.ranks), _COLUMNS), np.int8)
    buckets = []
    for row, rank in enumerate(analysis.timeline.ranks):
        start = analysis.timeline.begin_ns + begin

        def columns(spans: Spans, start: float = start) -> list[list[float]]:
            begins, ends = spans["begin"] - start, spans["end"] - start
            inside = (ends > 0) & (begins < length)
            begins, ends = begins[inside], ends[inside]
            times: list[list[float]] = np.stack([begins, ends], 1).tolist()
            return times

        submitted = analysis.activity.submitted[row, step] - begin
        runs = columns(rank.of(Phase.EXECUTE))
        exposed = [run for run in runs if run[1] > submitted]
        done = max((run[1] for run in exposed), default=submitted)
        _paint(states[row], length, submitted, done, _WAIT)
        for first, last in exposed:
            first = max(first, submitted)
            _paint(states[row], length, first, last, _COMMUNICATION)
        for key, phase in PROGRAM.items():
            for first, last in columns(rank.of(phase)):
                _paint(states[row], length, first, last, _PROGRAM[key])
        buckets.append(
            [
                (max(0.0, first), min(last, submitted))
                for first, last in runs
                if first < submitted
            ]
        )
    return Waterfall(int(steps.numbers[step]), length, states, buckets)


def _paint(
    row: npt.NDArray[np.int8],
    length: float,
    begin: float,
    end: float,
    state: int,
) -> None:
    if np.isnan(begin) or end <= begin:
        return
    first, last = (
        min(max(0.0, time / length), 1.0) * len(row) for time in (begin, end)
    )
    row[int(first) : max(int(last), int(first) + 1)] = state
