"""What is different in Keras 2. `keras3` has the same names."""

from __future__ import annotations

import contextvars
import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._keras import keras2_variables
from keras_ring._keras.loss_scaling import inner_optimizer
from keras_ring._keras.patching import patch_once
from keras_ring._keras.which import keras
from keras_ring._typing import (
    Callback,
    Layer,
    Logs,
    Model,
    Operation,
    Optimizer,
    PyDataset,
    Structure,
    Tensor,
    Variable,
)

Dataset = keras.utils.Sequence

METRICS_RESULT_METHOD = "_validate_and_get_metrics_result"

# The methods of `BackupAndRestore` that write files. Deleting them twice is
# no error there.
BACKUP_WRITES = ("_backup",)

# What a `SyncBatchNormalization` has for `synchronized`, see below.
SYNCHRONIZED = True

# The attribute of a model that has what `compile` was given. Of a model with
# several outputs metrics are copied for each, at the first batch.
COMPILED_METRICS = "compiled_metrics"

# With which a `ProgbarLogger` counts steps.
PROGBAR_ARGUMENTS: dict[str, Any] = {"count_mode": "steps"}

# Whether losses tell what they were divided by. `weighted=True` is refused.
TELLS_DIVISORS = False

# The method of an optimizer that updates all variables, once in a step.
UPDATES = "_internal_apply_gradients"

# How the variable of a metric says what it is.
AGGREGATIONS = (
    "`add_weight(..., aggregation=tf.VariableAggregation.MEAN)`, or "
    "`ONLY_FIRST_REPLICA`"
)


def is_built(model: Model) -> bool:
    """Whether a model has all its weights.

    What is made of layers alone is never built if it is never called, as a
    model whose `train_step` calls its parts. It has the weights of its parts.
    """
    return all(
        layer.built or (_parts(layer) and not _builds_itself(layer))
        for layer in model._flatten_layers()
    )


def _parts(layer: Layer) -> list[Layer]:
    return list(layer._flatten_layers(recursive=False, include_self=False))


def _builds_itself(layer: Layer) -> bool:
    plain = (keras.layers.Layer.build, keras.Model.build)
    return type(layer).build not in plain


def build_from_batch(
    model: Model,
    batch: Structure,
    train_step: Callable[[Structure], object] | None = None,
) -> None:
    """Builds a model, and its metrics, from the shapes of a batch.

    Args:
        model: A `keras.Model`.
        batch: What its `train_step` is called with.
        train_step: That of the model, if it has another one now.
    """
    if type(model).call is keras.Model.call:
        _trace(train_step or model.train_step, batch)
        return
    x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)

    def build(inputs: Structure) -> None:
        x, y = inputs
        predicted = model(x, training=True)
        if model.compiled_loss is not None and not model.compiled_loss.built:
            model.compiled_loss.build(predicted)
        metrics = model.compiled_metrics
        if metrics is not None and not metrics.built:
            metrics.build(predicted, y)

    _trace(build, (x, y))


def _trace(function: Callable[[Structure], object], batch: Structure) -> None:
    """Traces, and does not run: variables are made outside of the trace.

    By AutoGraph, as Keras does: a `call` of a program may have branches.
    """
    specs = tf.nest.map_structure(tf.type_spec_from_value, batch)
    with tf.init_scope():
        tf.function(function).get_concrete_function(specs)


def declared_trainable(layer: Layer) -> list[Variable]:
    """Returns a layer's own weights that were made to be trained."""
    return list(layer._trainable_weights)


def metrics_variables(model: Model) -> list[Variable]:
    """Returns the state of a model's metrics."""
    return [v for metric in model.metrics for v in metric.variables]


def aggregation(variable: Variable) -> str:
    """Returns how a metric's variable is combined: "sum", "mean" or "none"."""
    return {
        tf.VariableAggregation.SUM: "sum",
        tf.VariableAggregation.MEAN: "mean",
    }.get(variable.aggregation, "none")


def built_optimizer(
    optimizer: Optimizer, variables: Sequence[Variable]
) -> Optimizer:
    """Makes the variables of an optimizer, if it has none; returns it."""
    keras2_variables.build(optimizer, variables)
    return optimizer


def optimizer_variables(optimizer: Optimizer) -> list[Variable]:
    """Returns all variables of an optimizer."""
    return keras2_variables.all_of(optimizer)


def trained_variables(
    optimizer: Optimizer, candidates: Iterable[Variable]
) -> list[Variable]:
    """Returns what an optimizer was built for, in the order of then.

    Nothing if it was not, or for variables that are not candidates as well.
    """
    return keras2_variables.trained(inner_optimizer(optimizer), candidates)


def slots_of(
    optimizer: Optimizer, variables: Iterable[Variable]
) -> list[Variable]:
    """Returns what an optimizer remembers of each of these variables."""
    return keras2_variables.slots(inner_optimizer(optimizer), variables)


def is_optimizer(optimizer: Optimizer) -> bool:
    """Whether it is an optimizer that has variables."""
    return isinstance(
        optimizer,
        (
            keras.optimizers.Optimizer,
            keras.optimizers.legacy.Optimizer,
            keras.mixed_precision.LossScaleOptimizer,
        ),
    )


def has_settable_learning_rate(optimizer: Optimizer) -> bool:
    """Whether the learning rate can be changed between steps."""
    rate = getattr(optimizer, "_learning_rate", None)
    if rate is None:
        # One of `keras.optimizers.legacy`.
        rate = optimizer._get_hyper("learning_rate")
    return isinstance(rate, (float, tf.Variable))


def learning_rate(optimizer: Optimizer) -> float:
    """Returns the learning rate that an optimizer has now."""
    return float(keras.backend.get_value(optimizer.learning_rate))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Sets the learning rate."""
    optimizer.learning_rate = rate


def momentums(optimizer: Optimizer) -> list[Variable]:
    """Returns the momentums that past learning rates are multiplied into."""
    legacy = keras.optimizers.legacy
    found: list[Variable] = []
    if isinstance(optimizer, keras.optimizers.SGD):
        found = getattr(optimizer, "momentums", [])
    elif isinstance(optimizer, keras.optimizers.RMSprop):
        found = getattr(optimizer, "_momentums", [])
    elif isinstance(optimizer, (legacy.SGD, legacy.RMSprop)):
        found = [
            slots["momentum"]
            for slots in optimizer._slots.values()
            if "momentum" in slots
        ]
    return list(found)


def can_scale_in_step(optimizer: Optimizer) -> bool:
    """Whether momentum may be scaled by the next update, or must be at once.

    Optimizers of `optimizers.legacy` update one variable after the other.
    """
    settings = getattr(optimizer, "_settings", None)
    return (
        hasattr(optimizer, UPDATES)
        and bool(getattr(optimizer, "momentum", 0))
        and getattr(settings, "backward_passes_per_step", 1) == 1
    )


def seed_variables(model: Model) -> list[Variable]:
    """Returns the states of the generators that a model draws from.

    Those of layers that have a `tf.random.Generator`, as the random layers for
    images do. Others, as `Dropout`, draw from where no variable tells.
    """
    found = []
    for layer in model._flatten_layers():
        random = getattr(layer, "_random_generator", None)
        generator = getattr(random, "_generator", None)
        if isinstance(generator, tf.random.Generator):
            found.append(generator.state)
    return found


def own_seed_variables(model: Model) -> list[Variable]:
    """Returns the `seed_variables` of which each rank has its own state."""
    return seed_variables(model)


def is_shared_seed(variable: Variable) -> bool:
    """Returns `False`: of what all draw from, no variable tells."""
    del variable
    return False


def shared_seed() -> None:
    """Returns `None`: there is no `keras.random`."""


def set_shared_seed(value: npt.NDArray[Any]) -> None:
    """Does nothing."""
    del value


def dtype_name(variable: Variable) -> str:
    """Returns the name of a variable's type."""
    return str(tf.as_dtype(variable.dtype).name)


def as_numpy(variable: Variable) -> npt.NDArray[Any]:
    """Returns the value of a variable."""
    return np.asarray(keras.backend.get_value(variable))


def assign(variable: Variable, value: npt.ArrayLike) -> None:
    """Sets the value of a variable, now."""
    keras.backend.set_value(variable, value)


def run(operation: Operation) -> None:
    """Runs an operation of a program that has no eager execution."""
    tf.compat.v1.keras.backend.get_session().run(operation)


def tf_variable(variable: Variable) -> Variable:
    """Returns the TensorFlow variable, which it is already."""
    return variable


# Of the loss that is computed now: the mask of its elements.
_mask: contextvars.ContextVar[list[Tensor] | None] = contextvars.ContextVar(
    "keras_ring_mask", default=None
)


def hook_losses(
    shared: Callable[[Tensor, Callable[[], Tensor] | None, bool], Tensor],
    is_part: Callable[[], bool],
) -> None:
    """Has a function see each loss that Keras makes a scalar.

    Args:
        shared: Takes the loss, a function that returns what it was divided by,
            a scalar, and whether that is of the data and not only of its size;
            returns the loss. Of a loss that is a sum there is no function, but
            `None`.
        is_part: Returns whether that is of a part of a batch, which may have
            nothing to divide by.
    """
    purpose = "a rank's loss counts with the number it was divided by"
    patch_once(
        keras.losses.Loss,
        "__call__",
        functools.partial(_shares_losses, shared=shared),
        purpose,
    )
    patch_once(
        importlib.import_module(f"{keras.__name__}.src.utils.losses_utils"),
        "apply_valid_mask",
        functools.partial(_notes_mask, is_part=is_part),
        purpose,
    )


def _shares_losses(
    call: Callable[..., Tensor], shared: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    @functools.wraps(call)
    def call_and_share(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        masks: list[Tensor] = []
        token = _mask.set(masks)
        try:
            loss = call(self, *args, **kwargs)
        finally:
            _mask.reset(token)
        if self.reduction == keras.losses.Reduction.NONE:
            return loss
        if self.reduction == keras.losses.Reduction.SUM:
            return shared(loss, None, False)

        def divisor() -> Tensor:
            # Without a mask it is the number of elements, as of the rows.
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
        noted = _mask.get()
        if mask is None or noted is None:
            return weights
        noted.append(mask)
        if is_part():
            # Keras divides by their number, though there may be none.
            some = tf.reduce_any(tf.cast(mask, tf.bool))
            weights = tf.where(some, weights, tf.zeros_like(weights))
        return weights

    return apply_and_note


def save_if_due(
    checkpoint: Callback,
    epoch: int,
    batch: int | None,
    logs: Logs,
    save: Callable[[Path], None],
) -> None:
    """Does what `ModelCheckpoint` does when it may be time to save.

    Keras 2 decides and saves in one method, through one other.
    """
    checkpoint._save_handler = lambda filepath: save(Path(filepath))
    try:
        keras.callbacks.ModelCheckpoint._save_model(
            checkpoint, epoch, batch, logs
        )
    finally:
        del checkpoint._save_handler


def num_steps(params: dict[str, Any] | None) -> int | None:
    """Returns how many steps an epoch has, of a callback's `params`."""
    params = params or {}
    steps, samples = params.get("steps"), params.get("samples")
    if steps is None and samples and params.get("batch_size"):
        # Of arrays, without eager execution.
        return -(-int(samples) // int(params["batch_size"]))
    return steps


# `on_epoch_end` is called after each epoch, and at no other time.
FIRST_EPOCH_OF_PYDATASET = 0


def num_batches(dataset: PyDataset) -> int | None:
    """Returns the number of batches of a `Dataset`."""
    return len(dataset)


def dataset_arguments(dataset: PyDataset) -> dict[str, Any]:
    """Returns the arguments for a `Dataset` that is read like `dataset`."""
    del dataset
    return {}


def steps_per_execution(model: Model) -> int:
    """Returns how many steps one call of the compiled function trains."""
    steps = model._steps_per_execution
    return 1 if steps is None else int(steps)


def set_initial_epoch(model: Model, epoch: int | None) -> None:
    """Has the `fit` that has just begun go on at an epoch, or forgets it.

    It asks after `on_train_begin`, for Keras' own `BackupAndRestore`.
    """
    if epoch is not None:
        model._maybe_load_initial_counters_from_ckpt = lambda *_: (epoch, 0)
    elif "_maybe_load_initial_counters_from_ckpt" in vars(model):
        del model._maybe_load_initial_counters_from_ckpt


def hook_synchronized_moments(
    moments: Callable[..., tuple[Tensor, ...] | None],
) -> None:
    """Has a function make the moments of layers with `synchronized=True`.

    Args:
        moments: Called with the layer, inputs, axes and mask. Where it
            returns `None`, the layer does as before.
    """
    patch_once(
        keras.layers.BatchNormalization,
        "_sync_calculate_mean_and_var",
        functools.partial(_synchronizes, moments=moments),
        "`synchronized=True` is over all ranks",
    )


def _synchronizes(
    plain: Callable[..., tuple[Tensor, ...]],
    moments: Callable[..., tuple[Tensor, ...] | None],
) -> Callable[..., tuple[Tensor, ...]]:
    @functools.wraps(plain)
    def of_all_or_plain(
        self: Layer,
        inputs: Tensor,
        axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> tuple[Tensor, ...]:
        found = None if _is_saving() else moments(self, inputs, axes, mask)
        if found is None:
            return plain(self, inputs, axes, keep_dims, mask=mask)
        return _with_dims(found, inputs, axes) if keep_dims else found

    return of_all_or_plain


def _is_saving() -> bool:
    """Whether what is traced now becomes part of a SavedModel.

    It is served by programs that have no keras_ring and one batch each, and
    traced anew where a model is made of it again.
    """
    utils = importlib.import_module(
        f"{keras.__name__}.src.engine.base_layer_utils"
    )
    return bool(utils.call_context().saving)


def _with_dims(
    moments: Iterable[Tensor], inputs: Tensor, axes: Sequence[int]
) -> tuple[Tensor, ...]:
    shape = [1 if axis in axes else -1 for axis in range(inputs.shape.rank)]
    return tuple(tf.reshape(each, shape) for each in moments)


def hook_moments(
    moments: Callable[..., tuple[Tensor, ...] | None], purpose: str
) -> None:
    """Has a function make the moments of `BatchNormalization` layers.

    Args:
        moments: As for `hook_synchronized_moments`. It returns the number of
            elements, too.
        purpose: String, what for.
    """
    for name, around in (
        ("_calculate_mean_and_var", _made_by),
        ("_fused_batch_norm", _fused_of),
    ):
        # That of TensorFlow 1 has it of the same class.
        (owner,) = (
            each
            for each in keras.layers.BatchNormalization.__mro__
            if name in vars(each)
        )
        patch_once(
            owner, name, functools.partial(around, moments=moments), purpose
        )


def _made_by(
    plain: Callable[..., tuple[Tensor, ...]],
    moments: Callable[..., tuple[Tensor, ...] | None],
) -> Callable[..., tuple[Tensor, ...]]:
    @functools.wraps(plain)
    def made_or_plain(
        self: Layer,
        inputs: Tensor,
        reduction_axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> tuple[Tensor, ...]:
        found = moments(self, inputs, reduction_axes, mask)
        if found is None:
            return plain(self, inputs, reduction_axes, keep_dims, mask=mask)
        if keep_dims:
            return _with_dims(found[:2], inputs, reduction_axes)
        return found[:2]

    return made_or_plain


def _fused_of(
    plain: Callable[..., Tensor],
    moments: Callable[..., tuple[Tensor, ...] | None],
) -> Callable[..., Tensor]:
    @functools.wraps(plain)
    def fused_or_made(
        self: Layer, inputs: Tensor, mask: Tensor, training: Any
    ) -> Tensor:
        is_training = tf.get_static_value(training)
        if is_training is not None and not is_training:
            return plain(self, inputs, mask, training)
        axes = [i for i in range(inputs.shape.rank) if i not in self.axis]
        values = tf.cast(inputs, self._param_dtype)
        # The operation that does all in one knows no masks.
        found = moments(self, values, axes, None)
        if found is None:
            return plain(self, inputs, mask, training)
        if is_training is None:
            raise NotImplementedError(
                f"Whether layer {self.name!r} is trained is a tensor, and must "
                "be known when a step on a part of a batch is traced."
            )
        mean, variance, count = found
        # It estimates the variance of what the batch is a sample of.
        count = tf.cast(count, variance.dtype)
        unbiased = variance * count / tf.maximum(count - 1, 1)
        for moving, value in (
            (self.moving_mean, mean),
            (self.moving_variance, unbiased),
        ):
            self._assign_moving_average(moving, value, self.momentum, None)
        gamma = self.gamma if self.scale else tf.ones_like(mean)
        beta = self.beta if self.center else tf.zeros_like(mean)
        normalized = tf.nn.batch_normalization(
            values,
            *_with_dims((mean, variance, beta, gamma), inputs, axes),
            self.epsilon,
        )
        return tf.cast(normalized, inputs.dtype)

    return fused_or_made


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Has `moments_of_all_ranks` called where there are several."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        # Or Keras would use an operation that does all in one.
        kwargs["synchronized"] = True
        super().__init__(axis=axis, **kwargs)

    def _sync_calculate_mean_and_var(
        self,
        inputs: Tensor,
        axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> Any:
        if self.is_alone() or _is_saving():
            return self._no_sync_calculate_mean_and_var(
                inputs, axes, keep_dims, mask=mask
            )
        moments = self.moments_of_all_ranks(inputs, axes, mask)
        return _with_dims(moments, inputs, axes) if keep_dims else moments


def export_alike(made: type, exported: type) -> None:
    """Does nothing: a class has its public names as attributes."""
    del made, exported
