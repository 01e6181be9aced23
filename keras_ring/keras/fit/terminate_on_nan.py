"""Makes `TerminateOnNaN` consider the losses of all ranks.

The callback checks the loss of each batch, which is that of its own rank, and a
rank that stopped alone would leave the others waiting for its gradients. So
ranks tell each other whether a loss was bad: after each batch until this has
taken 0.1 s, then so rarely that it takes 1 % of the time, and at the end of
each epoch. A rank with a bad loss continues until the next exchange.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from keras_ring._typing import Callback, Logs, Model
from keras_ring.core import arrays, reduce_ops, topology
from keras_ring.core.process_sets import is_alone
from keras_ring.keras.agreement.time_budget import Budget
from keras_ring.keras.lanes import events, hooks, keras
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer.trained_by import trained_by

_PURPOSE = "a loss of any rank ends the training of all"
_WATCH = "_keras_ring_watch"
_ALLOWANCE = 0.1  # seconds


class _Watch:
    """The losses that a callback has seen since the last exchange.

    Attributes:
        budget: The `Budget` that limits the cost of exchanges.
        bad: Float, the last loss that is not finite, or `None`.
        batch: Integer, the last batch, or `None` if there was none.
    """

    def __init__(self) -> None:
        self.budget = Budget(_ALLOWANCE)
        self.bad: float | None = None
        self.batch: int | None = None


def install() -> None:
    """Changes the class of Keras. Calling it once is enough."""
    at_the_end = functools.partial(
        _what_is_left,
        on_batch_end=keras.callbacks.TerminateOnNaN.on_batch_end,
    )
    hooks.subscribe(
        events.LOSSES_LOOKED_AT, at_the_end, ring=Ring.JOB, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.LOSS_LOOKED_AT, _of_all_ranks, ring=Ring.JOB, purpose=_PURPOSE
    )


def _of_all_ranks(on_batch_end: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(on_batch_end)
    def of_all_ranks(
        self: Callback, batch: int, logs: Logs | None = None
    ) -> None:
        if not _is_of_several(self.model):
            on_batch_end(self, batch, logs)
            return
        watch = _watch_of(self)
        loss = (logs or {}).get("loss")
        if loss is not None and not np.all(np.isfinite(loss)):
            watch.bad = float(np.ravel(loss)[0])
        watch.batch = batch
        if watch.budget.is_due():
            _exchange(self, watch, on_batch_end)

    return of_all_ranks


def _what_is_left(
    on_epoch_end: Callable[..., None], on_batch_end: Callable[..., None]
) -> Callable[..., None]:
    @functools.wraps(on_epoch_end)
    def what_is_left(
        self: Callback, epoch: int, logs: Logs | None = None
    ) -> None:
        on_epoch_end(self, epoch, logs)
        watch = _watch_of(self)
        if watch.batch is not None and _is_of_several(self.model):
            _exchange(self, watch, on_batch_end)

    return what_is_left


def _is_of_several(model: Model) -> bool:
    return topology.is_initialized() and not is_alone(trained_by(model))


def _watch_of(callback: Callback) -> _Watch:
    watch = vars(callback).get(_WATCH)
    if watch is None:
        watch = _Watch()
        setattr(callback, _WATCH, watch)
    found: _Watch = watch
    return found


def _exchange(
    callback: Callback, watch: _Watch, on_batch_end: Callable[..., None]
) -> None:
    """Stops the training of all ranks if a loss was bad on any of them."""
    with watch.budget.checking():
        anywhere, periods = arrays.allreduce(
            np.array([watch.bad is not None, watch.budget.wish()], np.int32),
            reduce_ops.Max,
            name="terminate_on_nan",
            process_set=trained_by(callback.model),
        )
    watch.budget.agreed(int(periods))
    batch, watch.batch = watch.batch, None
    loss, watch.bad = watch.bad, None
    if anywhere:
        loss = float("nan") if loss is None else loss
        on_batch_end(callback, batch, {"loss": loss})
