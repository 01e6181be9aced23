"""The functions of Keras 3 that events are bound to."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from keras.src.backend import config
from keras.src.losses import loss as loss_module
from keras.src.utils import file_utils

from keras_ring._typing import DType, Layer, Model, Structure, Tensor
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes import (
    events,
    keras3,
    keras_events,
    seed_sharing,
)
from keras_ring.keras.lanes.binding import Absent, Bound, HookPoint, Table
from keras_ring.keras.lanes.wrapping import Around

_Step = Callable[[Structure], Any]
_Moments = Callable[..., tuple[Tensor, ...] | None]


def _traces(step: Callable[[Model, _Step], _Step]) -> Around:
    """Returns what replaces the training step of each model."""

    def around(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_function(self: Model, force: bool = False) -> Any:
            if self.train_function is not None and not force:
                return make(self, force)
            own = vars(self).get("train_step")
            train_step = step(self, self.train_step)
            # Bypasses the model's own `__setattr__`, which tracks attributes.
            object.__setattr__(self, "train_step", train_step)
            try:
                return make(self, force)
            finally:
                if own is None:
                    object.__delattr__(self, "train_step")
                else:
                    object.__setattr__(self, "train_step", own)

        return make_function

    return around


def _draws(seed: Callable[[Tensor], Tensor]) -> Around:
    """Returns what changes the seeds that `keras.random` draws by itself."""
    seed_sharing.share()

    def around(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(draw)
        def next_of_rank(self: Any, *args: Any, **kwargs: Any) -> Tensor:
            drawn = draw(self, *args, **kwargs)
            return seed(drawn) if keras3.is_shared_seed(self.state) else drawn

        return next_of_rank

    return around


def _calls_loss(loss: Callable[..., Tensor]) -> Around:
    # It depends on more of Keras' internals than others, for `--auto` alone.
    from keras_ring.keras.lanes import keras3_functions

    return keras3_functions.around_loss(loss)


def _updates_metrics(update: Callable[..., None]) -> Around:
    from keras_ring.keras.lanes import keras3_functions

    return keras3_functions.around_metrics(update)


def _reduces(
    shared: Callable[[Tensor, Callable[[], Tensor] | None, bool], Tensor],
) -> Around:
    """Returns what changes each loss that is reduced to a scalar."""

    def around(reduce: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return functools.wraps(reduce)(_sharing(reduce, shared))

    return around


def _sharing(
    reduce: Callable[..., Tensor], shared: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    def reduce_and_share(
        values: Tensor,
        sample_weight: Tensor = None,
        mask: Tensor = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: DType = None,
    ) -> Tensor:
        loss = reduce(values, sample_weight, mask, reduction, dtype)
        if reduction in (None, "none"):
            return loss
        if len(loss.shape):
            # Keras does not reduce a loss that is known to have no rows, as
            # in eager execution.
            loss = keras.ops.sum(loss)
        if reduction == "sum":
            return shared(loss, None, False)

        by_weight = reduction == "mean_with_sample_weight"

        def divisor() -> Tensor:
            if by_weight:
                weights = loss_module.apply_mask(
                    sample_weight, mask, loss.dtype, reduction
                )
            else:
                weights = mask
            if weights is None:
                return keras.ops.size(values)
            return keras.ops.sum(keras.ops.cast(weights, loss.dtype))

        of_data = by_weight and sample_weight is not None
        return shared(loss, divisor, of_data or mask is not None)

    return reduce_and_share


def _makes_moments(moments: _Moments) -> Around:
    """Returns what replaces the moments of a `BatchNormalization`."""

    def around(
        plain: Callable[..., tuple[Tensor, ...]],
    ) -> Callable[..., tuple[Tensor, ...]]:
        @functools.wraps(plain)
        def made_or_plain(
            self: Layer, inputs: Tensor, mask: Tensor
        ) -> tuple[Tensor, ...]:
            found = moments(self, inputs, self._reduction_axes, mask)
            return plain(self, inputs, mask) if found is None else found[:2]

        return made_or_plain

    return around


def _synchronizes(moments: _Moments) -> Around:
    """Returns what replaces the moments of layers with `synchronized=True`."""

    def around(
        plain: Callable[..., tuple[Tensor, ...]],
    ) -> Callable[..., tuple[Tensor, ...]]:
        @functools.wraps(plain)
        def synchronized_or_plain(
            self: Layer, inputs: Tensor, mask: Tensor
        ) -> tuple[Tensor, ...]:
            found = (
                moments(self, inputs, self._reduction_axes, mask)
                if self.synchronized
                else None
            )
            return plain(self, inputs, mask) if found is None else found

        return synchronized_or_plain

    return around


def _fetches(alone: Callable[[str], AbstractContextManager[None]]) -> Around:
    """Returns what makes `keras.utils.get_file` run in a context."""

    def around(get: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get)
        def get_alone(*args: Any, **kwargs: Any) -> Any:
            with alone(config.keras_home()):
                return get(*args, **kwargs)

        return get_alone

    return around


def _get_files() -> Iterator[HookPoint]:
    get_file = file_utils.get_file
    # Each dataset module of Keras has imported the function by name.
    for module in list(sys.modules.values()):
        if vars(module).get("get_file") is get_file:
            yield HookPoint(module, "get_file")


TABLE: Table = {
    **keras_events.TABLE,
    events.COMPILER_CHOSEN: (Bound("keras:Model._resolve_auto_jit_compile"),),
    events.ITERATOR_MADE: (
        Bound(
            "keras.src.backend.tensorflow.trainer:TFEpochIterator.__init__",
            adapt=keras_events.notes_iterator,
        ),
    ),
    events.PASS_BEGINS: (
        Bound(
            "keras.src.backend.tensorflow.trainer:TFEpochIterator.reset",
            adapt=keras_events.notes_pass,
        ),
    ),
    events.STEP_TRACED: (
        Bound("keras:Model.make_train_function", adapt=_traces),
    ),
    events.SEED_DRAWN: (
        Bound("keras:random.SeedGenerator.next", adapt=_draws),
    ),
    events.RESULTS_MADE: (Bound("keras:Model._get_metrics_result_or_logs"),),
    events.LOSS_CALLED: (
        Bound("keras.src.trainers.compile_utils:get_loss", adapt=_calls_loss),
    ),
    events.METRICS_UPDATED: (
        Bound(
            "keras.src.trainers.compile_utils:MetricsList.update_state",
            adapt=_updates_metrics,
        ),
    ),
    events.LOSS_REDUCED: (
        Bound("keras.src.losses.loss:reduce_weighted_values", adapt=_reduces),
    ),
    events.LOSS_MASKED: Absent(
        "Keras 3 itself returns 0 if there is nothing to divide by"
    ),
    events.MOMENTS: (
        Bound("keras:layers.BatchNormalization._moments", adapt=_makes_moments),
    ),
    events.SYNCHRONIZED_MOMENTS: (
        Bound("keras:layers.BatchNormalization._moments", adapt=_synchronizes),
    ),
    events.APPLIED: (Bound("keras:optimizers.Optimizer.apply"),),
    events.FILE_FETCHED: (
        Bound("`get_file`", adapt=_fetches, find=_get_files),
    ),
}
