"""Counts and records steps, epochs and evaluations, for views of the job.

Keras calls its callbacks through one list that has the methods of a callback.
Each event is observed there once, whichever callbacks a program has. The
counters of the job are told before the callbacks run, and the `Watch` of this
`fit` after them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from keras_ring.core import native, telemetry, topology
from keras_ring.keras import scope
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring

_PURPOSE = "what happens is told to whoever looks at the job"
_SAVES = "it is told that a checkpoint is written"
_MARK = "_keras_ring_seen"
_COMPUTE = 0


class _Seen:
    """The events that one list of callbacks has been told so far."""

    def __init__(self) -> None:
        self.began: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self.first_batch = 0
        self.steps = 0
        # The number of steps of an epoch, if `fit` knows it.
        self.known_steps: int | None = None


def install() -> None:
    """Changes Keras' list of callbacks, and models. Once is enough."""
    for point in hooks.points(events.CALLBACKS_TOLD):
        hooks.subscribe(
            events.CALLBACKS_TOLD,
            functools.partial(_told, _TOLD[point.name]),
            ring=Ring.OBSERVE,
            purpose=_PURPOSE,
            at=point,
        )
    hooks.subscribe(
        events.MODEL_SAVED, _saved, ring=Ring.OBSERVE, purpose=_SAVES
    )


def _saved(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def saved(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Not recorded again inside an activity that writes checkpoints.
        if not topology.is_initialized() or telemetry.is_doing("checkpoint"):
            return save(self, *args, **kwargs)
        with telemetry.activity("checkpoint", save.__name__):
            return save(self, *args, **kwargs)

    return saved


_Tell = Callable[[_Seen, int, int], None]


def _told(tell: _Tell, method: Callable[..., Any]) -> Callable[..., Any]:
    # Recorded before the callbacks run, so that their time does not count for
    # what has just ended.
    @functools.wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(self, tell, args)
        result = method(self, *args, **kwargs)
        watch = scope.current().watch
        # A callback may call `evaluate` or `fit`, with callbacks of its own.
        if watch is not None and watch.callbacks is self:
            watch.told(method.__name__)
        return result

    return told


def _tell(callbacks: Any, tell: _Tell, args: tuple[Any, ...]) -> None:
    if not topology.is_initialized():
        return
    seen = vars(callbacks).get(_MARK)
    if seen is None:
        seen = _Seen()
        setattr(callbacks, _MARK, seen)
    params = getattr(callbacks, "params", None) or {}
    seen.known_steps = params.get("steps")
    number = args[0] if args and isinstance(args[0], int) else 0
    tell(seen, number, time.monotonic_ns())


def _train_begin(seen: _Seen, _: int, now: int) -> None:
    seen.began["train"] = now


def _train_end(seen: _Seen, _: int, now: int) -> None:
    _count_time(seen, now)
    seen.began.pop("train", None)


def _count_time(seen: _Seen, now: int) -> None:
    """Counts the time in `fit` so far, so that it is seen while `fit` runs."""
    if "train" in seen.began:
        telemetry.count("fit_ns", now - seen.began["train"])
        seen.began["train"] = now


def _epoch_begin(seen: _Seen, epoch: int, now: int) -> None:
    seen.began["epoch"] = now
    telemetry.set_gauge("epoch", epoch + 1)


def _epoch_end(seen: _Seen, epoch: int, now: int) -> None:
    began = seen.began.pop("epoch", now)
    telemetry.span("epoch", f"epoch {epoch + 1}", began, now, epoch + 1)
    # The end of the data is an error in the graph, so that the activity is
    # still that of waiting for data.
    native.core().enter_activity(_COMPUTE, now)


def _batch_begin(seen: _Seen, batch: int, now: int) -> None:
    seen.began["step"] = now
    seen.first_batch = batch


def _batch_end(seen: _Seen, batch: int, now: int) -> None:
    began = seen.began.pop("step", now)
    # With `steps_per_execution`, batches come in groups, and Keras reports the
    # last group as large as the others.
    if seen.known_steps:
        batch = min(batch, seen.known_steps - 1)
    steps = max(batch - seen.first_batch, 0) + 1
    seen.steps += steps
    telemetry.count("fit_steps", steps)
    _count_time(seen, now)
    telemetry.span("step", "step", began, now, seen.steps)


def _begin(kind: str, seen: _Seen, _: int, now: int) -> None:
    seen.began[kind] = now
    seen.before[kind] = telemetry.enter(kind, now)


def _end(kind: str, seen: _Seen, _: int, now: int) -> None:
    began = seen.began.pop(kind, None)
    if began is not None:
        telemetry.leave(kind, seen.before.pop(kind), began, now)


_TOLD: dict[str, _Tell] = {
    "on_train_begin": _train_begin,
    "on_train_end": _train_end,
    "on_epoch_begin": _epoch_begin,
    "on_epoch_end": _epoch_end,
    "on_train_batch_begin": _batch_begin,
    "on_train_batch_end": _batch_end,
    "on_test_begin": functools.partial(_begin, "evaluate"),
    "on_test_end": functools.partial(_end, "evaluate"),
    "on_predict_begin": functools.partial(_begin, "predict"),
    "on_predict_end": functools.partial(_end, "predict"),
}
