"""The lane of Keras 2: what `Lane` describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

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
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes import keras2_variables
from keras_ring.keras.lanes.keras2_moments import is_saving, with_dims
from keras_ring.keras.lanes.loss_scaling import inner_optimizer

Dataset = keras.utils.Sequence

METRICS_RESULT_METHOD = "_validate_and_get_metrics_result"

# To delete the files twice is no error in Keras 2.
BACKUP_WRITES = ("_backup",)

# See `BatchNormalization` below.
SYNCHRONIZED = True

# If there are several outputs, metrics are copied for each at the first batch.
COMPILED_METRICS = "compiled_metrics"

PROGBAR_ARGUMENTS: dict[str, Any] = {"count_mode": "steps"}

TELLS_DIVISORS = False

UPDATES = "_internal_apply_gradients"

AGGREGATIONS = (
    "`add_weight(..., aggregation=tf.VariableAggregation.MEAN)`, or "
    "`ONLY_FIRST_REPLICA`"
)


def is_built(model: Model) -> bool:
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
    """Traces a function without running it, to make its variables.

    AutoGraph is used, as in Keras, because a `call` of the program may have
    branches.
    """
    specs = tf.nest.map_structure(tf.type_spec_from_value, batch)
    with tf.init_scope():
        tf.function(function).get_concrete_function(specs)


def declared_trainable(layer: Layer) -> list[Variable]:
    return list(layer._trainable_weights)


def metrics_variables(model: Model) -> list[Variable]:
    return [v for metric in model.metrics for v in metric.variables]


def aggregation(variable: Variable) -> str:
    return {
        tf.VariableAggregation.SUM: "sum",
        tf.VariableAggregation.MEAN: "mean",
    }.get(variable.aggregation, "none")


def built_optimizer(
    optimizer: Optimizer, variables: Sequence[Variable]
) -> Optimizer:
    keras2_variables.build(optimizer, variables)
    return optimizer


def optimizer_variables(optimizer: Optimizer) -> list[Variable]:
    return keras2_variables.all_of(optimizer)


def trained_variables(
    optimizer: Optimizer, candidates: Iterable[Variable]
) -> list[Variable]:
    return keras2_variables.trained(inner_optimizer(optimizer), candidates)


def slots_of(
    optimizer: Optimizer, variables: Iterable[Variable]
) -> list[Variable]:
    """Returns the slot variables that an optimizer has for these variables."""
    return keras2_variables.slots(inner_optimizer(optimizer), variables)


def is_optimizer(optimizer: Optimizer) -> bool:
    return isinstance(
        optimizer,
        (
            keras.optimizers.Optimizer,
            keras.optimizers.legacy.Optimizer,
            keras.mixed_precision.LossScaleOptimizer,
        ),
    )


def has_settable_learning_rate(optimizer: Optimizer) -> bool:
    rate = getattr(optimizer, "_learning_rate", None)
    if rate is None:
        # One of `keras.optimizers.legacy`.
        rate = optimizer._get_hyper("learning_rate")
    return isinstance(rate, (float, tf.Variable))


def learning_rate(optimizer: Optimizer) -> float:
    return float(keras.backend.get_value(optimizer.learning_rate))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    optimizer.learning_rate = rate


def momentums(optimizer: Optimizer) -> list[Variable]:
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
    """Returns whether momentum can be scaled in the next update.

    Otherwise it must be scaled at once, as of `optimizers.legacy`, whose
    optimizers update one variable after the other.
    """
    settings = getattr(optimizer, "_settings", None)
    return (
        hasattr(optimizer, UPDATES)
        and bool(getattr(optimizer, "momentum", 0))
        and getattr(settings, "backward_passes_per_step", 1) == 1
    )


def seed_variables(model: Model) -> list[Variable]:
    """Returns the states of the generators that a model draws from.

    These are the generators of layers with a `tf.random.Generator`, such as
    the random layers for images. Others, such as `Dropout`, have no state
    variable.
    """
    found = []
    for layer in model._flatten_layers():
        random = getattr(layer, "_random_generator", None)
        generator = getattr(random, "_generator", None)
        if isinstance(generator, tf.random.Generator):
            found.append(generator.state)
    return found


def own_seed_variables(model: Model) -> list[Variable]:
    """Returns the `seed_variables`, whose states all differ between ranks."""
    return seed_variables(model)


def is_shared_seed(variable: Variable) -> bool:
    """Returns `False`: no state that ranks share is in a variable."""
    del variable
    return False


def shared_seed() -> None:
    """Returns `None`: Keras 2 has no `keras.random`."""


def set_shared_seed(value: npt.NDArray[Any]) -> None:
    """Does nothing: Keras 2 has no `keras.random`."""
    del value


def as_numpy(variable: Variable) -> npt.NDArray[Any]:
    return np.asarray(keras.backend.get_value(variable))


def assign(variable: Variable, value: npt.ArrayLike) -> None:
    keras.backend.set_value(variable, value)


def run(operation: Operation) -> None:
    tf.compat.v1.keras.backend.get_session().run(operation)


def save_if_due(
    checkpoint: Callback,
    epoch: int,
    batch: int | None,
    logs: Logs,
    save: Callable[[Path], None],
) -> None:
    """Calls a function if a `ModelCheckpoint` decides to save now.

    Keras 2 decides and saves in one method, whose handler is replaced here.
    """
    checkpoint._save_handler = lambda filepath: save(Path(filepath))
    try:
        keras.callbacks.ModelCheckpoint._save_model(
            checkpoint, epoch, batch, logs
        )
    finally:
        del checkpoint._save_handler


def num_steps(params: dict[str, Any] | None) -> int | None:
    params = params or {}
    steps, samples = params.get("steps"), params.get("samples")
    if steps is None and samples and params.get("batch_size"):
        # Keras gives these for arrays if there is no eager execution.
        return -(-int(samples) // int(params["batch_size"]))
    return steps


# Keras 2 calls `on_epoch_end` after each epoch, and at no other time.
FIRST_EPOCH_OF_PYDATASET = 0


def num_batches(dataset: PyDataset) -> int | None:
    """Returns the number of batches of a `Dataset`."""
    return len(dataset)


def dataset_arguments(dataset: PyDataset) -> dict[str, Any]:
    del dataset
    return {}


def steps_per_execution(model: Model) -> int:
    steps = model._steps_per_execution
    return 1 if steps is None else int(steps)


def set_initial_epoch(model: Model, epoch: int | None) -> None:
    """Sets the epoch at which the `fit` that has just begun continues.

    The replaced method is called after `on_train_begin`, for the sake of Keras'
    own `BackupAndRestore`.

    Args:
        model: A `keras.Model`.
        epoch: Integer, the epoch, or `None` to reset it.
    """
    if epoch is not None:
        model._maybe_load_initial_counters_from_ckpt = lambda *_: (epoch, 0)
    elif "_maybe_load_initial_counters_from_ckpt" in vars(model):
        del model._maybe_load_initial_counters_from_ckpt


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """A layer that calls `moments_of_all_ranks` unless a rank is alone."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        # Otherwise Keras would use a fused operation.
        kwargs["synchronized"] = True
        super().__init__(axis=axis, **kwargs)

    def _sync_calculate_mean_and_var(
        self,
        inputs: Tensor,
        axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> Any:
        if self.is_alone() or is_saving():
            return self._no_sync_calculate_mean_and_var(
                inputs, axes, keep_dims, mask=mask
            )
        moments = self.moments_of_all_ranks(inputs, axes, mask)
        return with_dims(moments, inputs, axes) if keep_dims else moments


def export_alike(made: type, exported: type) -> None:
    """Does nothing: in Keras 2, public names are attributes of a class."""
    del made, exported
