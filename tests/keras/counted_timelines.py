"""Compares a timeline of a real `fit` with what its ranks have counted.

The timeline is read by who knows the published format alone.
"""

import bisect
import collections

import numpy as np
import pytest

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.timeline.merge import read
from keras_ring.observe.timeline.model import Phase
from tests.keras import counted_fit
from tests.multiprocess.failures import trace_readers

# Steps that are compared one by one. The first ones are traced, or are with
# the broadcast.
FIRST = 3
PHASES = ("negotiate", "queue", "execute", "wait", "pack", "reduce", "unpack")


def differences(counters, name):
    """Returns what was counted in each step from `FIRST` on."""
    by_step = [each[name] for each in counters[1 : counted_fit.STEPS + 1]]
    return np.diff(by_step)[FIRST - 2 :]


def ends_of_steps(process):
    return [each.end for each in process.of("step")]


def last_in_steps(ends, times):
    """Returns the last of the times in each step, from `FIRST` on."""
    last = [0] * (len(ends) + 1)
    for time in times:
        step = bisect.bisect_right(ends, time)
        last[step] = max(last[step], time)
    return last[FIRST - 1 : len(ends)]


def overlap(process):
    """Returns nanoseconds of buckets before, and of all after, submission.

    In each step from `FIRST` on: a bucket that runs before the last gradient
    is there is hidden behind computation; what passes from then until the last
    bucket is done is not.
    """
    ends = ends_of_steps(process)
    buckets = process.of("execute")
    submitted = last_in_steps(
        ends, [each.begin for each in process.of("negotiate")]
    )
    done = [0] * (len(ends) + 1)
    hidden = np.zeros(len(submitted))
    covered = 0
    for each in buckets:
        step = bisect.bisect_right(ends, each.begin)
        done[step] = max(done[step], each.end)
        index = step - (FIRST - 1)
        if 0 <= index < len(submitted):
            # Two may run at once.
            begin = max(each.begin, covered)
            until = min(each.end, submitted[index])
            hidden[index] += max(until - begin, 0)
        covered = max(covered, each.end)
    done = done[FIRST - 1 : len(ends)]
    return hidden, np.subtract(done, submitted)


def check(path, counted):
    """Asserts that a timeline says what ranks have counted.

    Args:
        path: Of the timeline.
        counted: What `counted_fit.train` has returned on each rank.
    """
    processes = trace_readers.read_published(path)
    found = [
        next(
            process
            for title, process in processes.items()
            if title.startswith(f"rank {rank} ")
        )
        for rank in range(len(counted))
    ]
    report = analyse(read(path))
    for rank, process in enumerate(found):
        assert len(process.of("step")) == counted_fit.STEPS
        _check_phases(process, counted[rank])
        _check_tensors(process)
        _check_lateness(process, counted)
        _check_overlap(process, counted[rank], report, rank)
    # The report says of it what it says of all.
    hidden, communication = (
        np.nansum(times[:, FIRST - 1 :])
        for times in (report.activity.hidden, report.activity.communication)
    )
    assert hidden / communication > 0.05
    usual = report.lateness.last[report.steps.usual]
    assert np.bincount(usual[usual >= 0]).argmax() == counted_fit.SLOW


def _close(value, expected, what=""):
    # Some of the times are short, where reading a clock counts.
    assert value == pytest.approx(expected, rel=0.02, abs=200e3), what


def _check_phases(process, counters):
    before, *_, after = counters
    totals = process.totals()
    # A bucket waits in the queue once, and is counted for each of its tensors.
    tensors = {
        each.arguments["collective"]: each.arguments["tensors"]
        for each in process.of("execute")
    }
    totals["queue"] = sum(
        each.time * tensors[each.arguments["collective"]]
        for each in process.of("queue")
    )
    for phase in PHASES:
        name = f"{phase}_ns"
        _close(totals[phase], after[name] - before[name], name)


def _check_tensors(process):
    """Each gradient is waited for once in each step."""
    names = collections.Counter(
        each.name for each in process.of("negotiate") if "layer" in each.name
    )
    gradients = {name for name in names if "gradient/" in name}
    assert len(gradients) == 2 * counted_fit.LAYERS, names
    assert {names[name] for name in gradients} == {counted_fit.STEPS}


def _check_lateness(process, counted):
    """All ranks say alike who was late, and how much, as each has counted."""
    last, late = collections.Counter(), collections.Counter()
    for kind, arguments in process.instants:
        if kind == "late" and arguments.get("late_ns", 0):
            last[arguments["last_rank"]] += 1
            late[arguments["last_rank"]] += arguments["late_ns"]
    for rank, (before, *_, after) in enumerate(counted):
        assert last[rank] == after["last_buckets"] - before["last_buckets"]
        _close(late[rank], after["late_ns"] - before["late_ns"])
    assert late.most_common(1)[0][0] == counted_fit.SLOW


def _check_overlap(process, counters, report, rank):
    """What is hidden behind computation, and what is not, step by step."""
    hidden, exposed = overlap(process)
    by_step = counters[FIRST : counted_fit.STEPS + 1]
    counted = [each["done_ns"] - each["submitted_ns"] for each in by_step]
    assert len(exposed) == len(counted)
    _close(exposed.sum(), sum(counted))
    activity = report.activity
    _close(activity.exposed[rank, FIRST - 1 :].sum(), sum(counted))
    _close(activity.hidden[rank, FIRST - 1 :].sum(), hidden.sum())
    executed = differences(counters, "execute_ns").sum()
    # As the summary of `fit` has it.
    before = counters[FIRST - 1 : counted_fit.STEPS]
    beside = sum(
        each["submitted_execute_ns"] - last["execute_ns"]
        for last, each in zip(before, by_step, strict=True)
    )
    _close(beside, hidden.sum(), "hidden")
    _close(activity.core[Phase.EXECUTE][rank, FIRST - 1 :].sum(), executed)
