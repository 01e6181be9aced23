"""The functions of Keras 2 that events are bound to."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_ring._typing import Model, Structure, Tensor
from keras_ring.keras import scope
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes import events, keras2_moments, keras_events
from keras_ring.keras.lanes.binding import Absent, Bound, HookPoint, Table
from keras_ring.keras.lanes.wrapping import Around

_Step = Callable[[Structure], Any]


def _traces(around_step: Callable[[Model, _Step], _Step]) -> Around:
    """Returns what replaces the training step of each model."""

    def around(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_function(self: Model, force: bool = False) -> Any:
            if self.train_function is not None and not force:
                return make(self, force)
            train = make(self, force)

            # Keras looks `train_step` up whenever it traces.
            def train_on_ranks(*args: Any, **kwargs: Any) -> Any:
                with _another_train_step(self, around_step):
                    return train(*args, **kwargs)

            self.train_function = train_on_ranks
            return train_on_ranks

        return make_function

    return around


@contextlib.contextmanager
def _another_train_step(
    model: Model,
    around: Callable[[Model, _Step], _Step],
) -> Iterator[None]:
    own = vars(model).get("train_step")
    train_step = model.train_step

    def step(batch: Structure) -> Any:
        return around(model, train_step)(batch)

    # Makes AutoGraph call the step as it is and still convert the layers.
    step.autograph_info__ = {}  # type: ignore[attr-defined]
    # Bypasses the model's own `__setattr__`, which tracks attributes.
    object.__setattr__(model, "train_step", step)
    try:
        yield
    finally:
        if own is None:
            object.__delattr__(model, "train_step")
        else:
            object.__setattr__(model, "train_step", own)


def _calls_losses(loss: Callable[..., Tensor]) -> Around:
    # It depends on more of Keras' internals than others, for `--auto` alone.
    from keras_ring.keras.lanes import keras2_functions

    return keras2_functions.around_losses(loss)


def _updates_metrics(update: Callable[..., None]) -> Around:
    from keras_ring.keras.lanes import keras2_functions

    return keras2_functions.around_metrics(update)


def _reduces(shared: Callable[..., Tensor]) -> Around:
    """Returns what changes each loss that is reduced to a scalar."""
    return functools.partial(_shares_losses, shared=shared)


def _masks(is_part: Callable[[], bool]) -> Around:
    """Returns what notes masks, and keeps losses of nothing finite."""
    return functools.partial(_notes_mask, is_part=is_part)


def _shares_losses(
    call: Callable[..., Tensor], shared: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    @functools.wraps(call)
    def call_and_share(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        masks: list[Tensor] = []
        with scope.inside(masks=masks):
            loss = call(self, *args, **kwargs)
        if self.reduction == keras.losses.Reduction.NONE:
            return loss
        if self.reduction == keras.losses.Reduction.SUM:
            return shared(loss, None, False)

        def divisor() -> Tensor:
            # Called with a mask only: otherwise the divisor is the number of
            # elements, and `shared` uses the number of rows.
            return tf.reduce_sum(tf.cast(masks[0], tf.float64))

        return shared(loss, divisor, bool(masks))

    return call_and_share


def _notes_mask(
    apply: Callable[..., Tensor], is_part: Callable[[], bool]
) -> Callable[..., Tensor]:
    @functools.wraps(apply)
    def apply_and_note(
        losses: Tensor, sw: Tensor, mask: Tensor, reduction: str
    ) -> Tensor:
        weights = apply(losses, sw, mask, reduction)
        noted = scope.current().masks
        if mask is None or noted is None:
            return weights
        noted.append(mask)
        if is_part():
            # Keras divides by the number of these, which may be 0.
            some = tf.reduce_any(tf.cast(mask, tf.bool))
            weights = tf.where(some, weights, tf.zeros_like(weights))
        return weights

    return apply_and_note


def _fetches(
    alone: Callable[[str], contextlib.AbstractContextManager[None]],
) -> Around:
    """Returns what makes `keras.utils.get_file` run in a context."""

    def around(get: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get)
        def get_alone(*args: Any, **kwargs: Any) -> Any:
            with alone(_module("backend")._keras_dir):
                return get(*args, **kwargs)

        return get_alone

    return around


def _get_files() -> Iterator[HookPoint]:
    get_file = _module("utils.data_utils").get_file
    # Each dataset module of Keras has imported the function by name.
    for module in list(sys.modules.values()):
        if vars(module).get("get_file") is get_file:
            yield HookPoint(module, "get_file")


def _module(name: str) -> Any:
    """Returns an internal module of Keras, from `keras` or `tf_keras`."""
    return importlib.import_module(f"{keras.__name__}.src.{name}")


def _normalization(name: str) -> Iterator[HookPoint]:
    """Yields the class that defines a method of `BatchNormalization`.

    The class of TensorFlow 1 inherits it as well.
    """
    for each in keras.layers.BatchNormalization.__mro__:
        if name in vars(each):
            yield HookPoint(each, name)


TABLE: Table = {
    **keras_events.TABLE,
    events.COMPILER_CHOSEN: Absent(
        "Keras 2 compiles only what the program says"
    ),
    events.ITERATOR_MADE: (
        Bound(
            "keras.src.engine.data_adapter:DataHandler.__init__",
            adapt=keras_events.notes_iterator,
        ),
    ),
    events.PASS_BEGINS: (
        Bound(
            "keras.src.engine.data_adapter:DataHandler.enumerate_epochs",
            adapt=keras_events.notes_pass,
        ),
    ),
    events.STEP_TRACED: (
        Bound("keras:Model.make_train_function", adapt=_traces),
    ),
    events.SEED_DRAWN: Absent(
        "with Keras 2, all ranks draw the same between steps"
    ),
    events.RESULTS_MADE: (
        Bound("keras:Model._validate_and_get_metrics_result"),
    ),
    events.LOSS_CALLED: (
        Bound(
            "keras.src.engine.compile_utils:LossesContainer.__call__",
            adapt=_calls_losses,
        ),
    ),
    events.METRICS_UPDATED: (
        Bound(
            "keras.src.engine.compile_utils:MetricsContainer.update_state",
            adapt=_updates_metrics,
        ),
    ),
    events.LOSS_REDUCED: (Bound("keras:losses.Loss.__call__", adapt=_reduces),),
    events.LOSS_MASKED: (
        Bound("keras.src.utils.losses_utils:apply_valid_mask", adapt=_masks),
    ),
    events.MOMENTS: (
        Bound(
            "`BatchNormalization._calculate_mean_and_var`",
            adapt=keras2_moments.makes,
            find=functools.partial(_normalization, "_calculate_mean_and_var"),
        ),
        Bound(
            "`BatchNormalization._fused_batch_norm`",
            adapt=keras2_moments.fuses,
            find=functools.partial(_normalization, "_fused_batch_norm"),
        ),
    ),
    events.SYNCHRONIZED_MOMENTS: (
        Bound(
            "keras:layers.BatchNormalization._sync_calculate_mean_and_var",
            adapt=keras2_moments.synchronizes,
        ),
    ),
    events.APPLIED: Absent("the optimizers of Keras 2 have no `apply`"),
    events.FILE_FETCHED: (
        Bound("`get_file`", adapt=_fetches, find=_get_files),
    ),
}
