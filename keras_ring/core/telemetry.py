"""Slices and counters that show the activities of a program.

Slices are added to the timeline while one is recorded. Counters are those of
`kr.metrics()`, and other processes can read them at any time. Without a job,
the functions have no effect, so callers need not check for one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from keras_ring.core import native

# The phases of slices, with their numbers in the core.
PHASES = {
    "step": 16,
    "epoch": 17,
    "data": 18,
    "checkpoint": 19,
    "evaluate": 20,
    "predict": 21,
    "user": 22,
}
# The values of the gauge `activity`; 0 is computing.
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
        phase: String, a key of `PHASES`.
        name: String, the name of the slice.
        begin_ns: Integer, the begin by `time.monotonic_ns()`.
        end_ns: Integer, the end by `time.monotonic_ns()`.
        value: Integer, the number of a step. Defaults to `0`.
    """
    _core().trace_span(PHASES[phase], name, begin_ns, end_ns, value)


def count(metric: str, amount: int = 1) -> None:
    """Adds to a counter of `kr.metrics()`."""
    _core().count(metric, amount)


def set_gauge(metric: str, value: int) -> None:
    """Sets a value of `kr.metrics()` that describes the present state."""
    _core().set_gauge(metric, value)


def enter(kind: str, now: int) -> int:
    """Begins an activity.

    Args:
        kind: String, `"data"`, `"checkpoint"`, `"evaluate"` or `"predict"`.
        now: Integer, the time by `time.monotonic_ns()`.

    Returns:
        Integer, the activity before, for `leave`.
    """
    return int(_core().enter_activity(_ACTIVITIES[kind], now))


def leave(kind: str, before: int, began: int, now: int, name: str = "") -> None:
    """Ends an activity: counts its time and adds a slice.

    Args:
        kind: String, as for `enter`.
        before: Integer, the result of `enter`.
        began: Integer, the begin by `time.monotonic_ns()`.
        now: Integer, the end by `time.monotonic_ns()`.
        name: String, the name of the slice. Defaults to `kind`.
    """
    core = _core()
    core.enter_activity(before, now)
    if kind in _TIMES:
        core.count(_TIMES[kind], now - began)
    span(kind, name or kind, began, now)


def is_doing(kind: str) -> bool:
    """Returns whether the current activity is of this kind."""
    return bool(_core().metrics()["activity"] == _ACTIVITIES[kind])


@contextlib.contextmanager
def activity(kind: str, name: str = "") -> Iterator[None]:
    """Shows the block as an activity of the program.

    Args:
        kind: String, as for `enter`.
        name: String, the name of the slice. Defaults to `kind`.
    """
    began = time.monotonic_ns()
    before = enter(kind, began)
    try:
        yield
    finally:
        leave(kind, before, began, time.monotonic_ns(), name)


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Excludes samples that are taken in the block from the count.

    Used for batches that are only inspected, and taken again for training.
    """
    core = _core()
    # Samples that are taken within an activity are not counted.
    before = core.enter_activity(_ACTIVITIES["data"], time.monotonic_ns())
    try:
        yield
    finally:
        core.enter_activity(before, time.monotonic_ns())
