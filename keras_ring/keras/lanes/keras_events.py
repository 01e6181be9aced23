"""The functions that events are bound to alike in Keras 2 and Keras 3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Structure, Tensor
from keras_ring.keras.lanes import events, writers
from keras_ring.keras.lanes.binding import Bound, Table
from keras_ring.keras.lanes.wrapping import Around

_MADE = "_keras_ring_made"


def notes_iterator(made: Callable[[Any], Any]) -> Around:
    """Returns what tells of each iterator over batches."""

    def around(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            # Another subscriber may have noted something.
            if (noted := made(self)) is not None:
                setattr(self, _MADE, noted)

        return make

    return around


def notes_pass(begun: Callable[[Any], None]) -> Around:
    """Returns what tells of each pass over the data of an iterator."""

    def around(begin: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(begin)
        def begin_and_tell(self: Any) -> Any:
            # Keras 2 returns a generator here, which has not run yet.
            result = begin(self)
            begun(getattr(self, _MADE, None))
            return result

        return begin_and_tell

    return around


def _counts(
    counts: Callable[[Any, Structure, Structure], tuple[Structure, Structure]],
) -> Around:
    """Returns what changes the values that a mean is updated with."""

    def around(update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def update_state(
            self: Any, values: Tensor, sample_weight: Tensor = None
        ) -> Any:
            values, sample_weight = counts(self, values, sample_weight)
            return update(self, values, sample_weight=sample_weight)

        return update_state

    return around


TABLE: Table = {
    events.FIT_RUNS: (Bound("keras:Model.fit"),),
    events.BATCH_TRAINED: (Bound("keras:Model.train_on_batch"),),
    events.BATCH_TESTED: (Bound("keras:Model.test_on_batch"),),
    events.EVALUATED: (Bound("keras:Model.evaluate"),),
    events.PREDICTED: (Bound("keras:Model.predict"),),
    events.MODEL_SAVED: (Bound("keras:Model.save, save_weights"),),
    events.MODEL_EXPORTED: (
        Bound("keras:Model.export"),
        Bound("keras:saving.save_model"),
        Bound("keras:models.save_model"),
    ),
    events.METRICS_RESET: (Bound("keras:Model.reset_metrics"),),
    events.MEAN_UPDATED: (
        Bound("keras:metrics.Mean.update_state", adapt=_counts),
        Bound("keras:metrics.Sum.update_state", adapt=_counts),
    ),
    events.METRIC_MADE: (Bound("keras:metrics.Metric.__init__"),),
    events.CALLBACKS_TOLD: (
        Bound(
            "keras:callbacks.CallbackList.on_train_begin, on_train_end, "
            "on_epoch_begin, on_epoch_end, on_train_batch_begin, "
            "on_train_batch_end, on_test_begin, on_test_end, "
            "on_predict_begin, on_predict_end"
        ),
    ),
    events.CALLBACKS_ADDED: (
        Bound("keras:callbacks.CallbackList._add_default_callbacks"),
    ),
    events.WRITER_CALLED: (
        Bound(
            "methods that write of `BackupAndRestore`, `CSVLogger`, "
            "`ModelCheckpoint`, `OrbaxCheckpoint`, `ProgbarLogger`, "
            "`RemoteMonitor`, `TensorBoard`",
            find=writers.calls,
        ),
    ),
    events.WRITER_SET: (
        Bound("`set_model` of these callbacks", find=writers.sets),
    ),
    events.LOSS_LOOKED_AT: (
        Bound("keras:callbacks.TerminateOnNaN.on_batch_end"),
    ),
    events.LOSSES_LOOKED_AT: (
        Bound("keras:callbacks.TerminateOnNaN.on_epoch_end"),
    ),
    events.IMAGE_SAVED: (Bound("keras:utils.save_img"),),
}
