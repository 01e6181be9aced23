"""What a program does, for whoever looks at its job: slices and counters.

Slices go to the timeline while one is recorded. Counters are those of
`kr.metrics()` and can be seen from outside of the process at any time. Without
a job all of this does nothing, so callers need not ask.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from keras_ring._runtime import native

# Of slices, as the core numbers them.
PHASES = {
    "step": 16,
    "epoch": 17,
    "data": 18,
    "checkpoint": 19,
    "evaluate": 20,
    "predict": 21,
    "user": 22,
}
# What the gauge `activity` shows; 0 is computing.
_ACTIVITIES = {"data": 1, "checkpoint": 2, "evaluate": 3, "predict": 4}
_TIMES = {
    "data": "data_wait_ns",
    "checkpoint": "checkpoint_ns",
    "evaluate": "evaluate_ns",
}


def _core() -> Any:
    return native.core()


def is_tracing() -> bool:
    """Returns whether a timeline is being recorded."""
    return bool(_core().is_tracing())


def span(
    phase: str, name: str, begin_ns: int, end_ns: int, value: int = 0
) -> None:
    """Adds a slice to the timeline.

    Args:
        phase: A key of `PHASES`.
        name: String, what the slice is called.
        begin_ns: Integer, by `time.monotonic_ns()`.
        end_ns: Integer, likewise.
        value: Integer; of a step, its number.
    """
    _core().trace_span(PHASES[phase], name, begin_ns, end_ns, value)


def count(metric: str, amount: int = 1) -> None:
    """Adds to a counter of `kr.metrics()`."""
    _core().count(metric, amount)


def set_gauge(metric: str, value: int) -> None:
    """Sets a counter of `kr.metrics()` that says how things are now."""
    _core().set_gauge(metric, value)


def enter(kind: str, now: int) -> int:
    """Begins an activity.

    Args:
        kind: `"data"`, `"checkpoint"`, `"evaluate"` or `"predict"`.
        now: Integer, by `time.monotonic_ns()`.

    Returns:
        What the program has done before, for `leave`.
    """
    return int(_core().enter_activity(_ACTIVITIES[kind], now))


def leave(kind: str, before: int, began: int, now: int, name: str = "") -> None:
    """Ends an activity: counts its time and adds a slice.

    Args:
        kind: As for `enter`.
        before: What `enter` has returned.
        began: Integer, by `time.monotonic_ns()`.
        now: Integer, likewise.
        name: String, what the slice is called. Defaults to the kind.
    """
    core = _core()
    core.enter_activity(before, now)
    if kind in _TIMES:
        core.count(_TIMES[kind], now - began)
    span(kind, name or kind, began, now)


def is_doing(kind: str) -> bool:
    """Returns whether the program is within such an activity."""
    return bool(_core().metrics()["activity"] == _ACTIVITIES[kind])


@contextlib.contextmanager
def activity(kind: str, name: str = "") -> Iterator[None]:
    """Shows what the program does inside of the block.

    Args:
        kind: As for `enter`.
        name: String, what the slice is called. Defaults to the kind.
    """
    began = time.monotonic_ns()
    before = enter(kind, began)
    try:
        yield
    finally:
        leave(kind, before, began, time.monotonic_ns(), name)


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Has samples that are taken inside not counted.

    Those of batches that are only looked at, and taken again to be trained on.
    """
    core = _core()
    # Of what else the program does, samples are not counted.
    before = core.enter_activity(_ACTIVITIES["data"], time.monotonic_ns())
    try:
        yield
    finally:
        core.enter_activity(before, time.monotonic_ns())
