"""What is different in Keras 3. `keras2` has the same names."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tensorflow as tf
from keras.src import api_export
from keras.src.backend.common import global_state
from keras.src.losses import loss as loss_module
from keras.src.random.seed_generator import global_seed_generator

from keras_ring._keras import chance, scalars
from keras_ring._keras.loss_scaling import inner_optimizer
from keras_ring._keras.patching import patch_once
from keras_ring._keras.which import keras
from keras_ring._typing import (
    Callback,
    DType,
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

Dataset = keras.utils.PyDataset

# The method of a model that makes the results of its metrics, after each pass
# over the data and nowhere else.
METRICS_RESULT_METHOD = "_get_metrics_result_or_logs"

# The methods of `BackupAndRestore` that write or delete files.
BACKUP_WRITES = ("_save_model", "on_train_end")

# The attribute of a model that has what `compile` was given.
COMPILED_METRICS = "_compile_metrics"

# How the variable of a metric says what it is.
AGGREGATIONS = (
    '`add_variable(..., aggregation="mean")`, or "only_first_replica"'
)

# With which a `ProgbarLogger` counts steps.
PROGBAR_ARGUMENTS: dict[str, Any] = {}

# Whether losses tell what they were divided by.
TELLS_DIVISORS = True

# The method of an optimizer that updates all variables, once in a step.
UPDATES = "_backend_update_step"

# What a `SyncBatchNormalization` has for `synchronized`.
SYNCHRONIZED = False


def is_built(model: Model) -> bool:
    """Whether a model has all its weights.

    What is made of layers alone is never built if it is never called, as a
    model whose `train_step` calls its parts. It has the weights of its parts.
    """
    return all(
        layer.built or (layer._layers and not _builds_itself(layer))
        for layer in model._flatten_layers()
    )


def _builds_itself(layer: Layer) -> bool:
    return type(layer).build is not keras.layers.Layer.build


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
    if type(model).call is not keras.Model.call:
        try:
            with tf.init_scope():
                model._symbolic_build(data_batch=batch)
            return
        except RuntimeError:
            if is_built(model):
                return
    # Traced, not run: Keras makes variables outside of all traces. Not in an
    # `init_scope`, which stops all tapes.
    traced = tf.function(train_step or model.train_step, autograph=False)
    specs = tf.nest.map_structure(tf.type_spec_from_value, batch)
    traced.get_concrete_function(specs)


def declared_trainable(layer: Layer) -> list[Variable]:
    """Returns a layer's own weights that were made to be trained."""
    return list(layer._trainable_variables)


def metrics_variables(model: Model) -> list[Variable]:
    """Returns the state of a model's metrics."""
    return list(model.metrics_variables)


def aggregation(variable: Variable) -> str:
    """Returns how a metric's variable is combined: "sum", "mean" or "none"."""
    found = variable.aggregation
    return found if found in ("sum", "mean") else "none"


def built_optimizer(
    optimizer: Optimizer, variables: Sequence[Variable]
) -> Optimizer:
    """Makes the variables of an optimizer, if it has none; returns it."""
    if not optimizer.built:
        optimizer.build(variables)
    return optimizer


def optimizer_variables(optimizer: Optimizer) -> list[Variable]:
    """Returns all variables of an optimizer."""
    return list(optimizer.variables)


def trained_variables(
    optimizer: Optimizer, candidates: Iterable[Variable]
) -> list[Variable]:
    """Returns what an optimizer was built for, in the order of then.

    Nothing if it was not, or for variables that are not candidates as well.
    """
    inner = inner_optimizer(optimizer)
    by_id = {id(tf_variable(each)): each for each in candidates}
    trained = [id(tf_variable(each)) for each in inner._trainable_variables]
    if not all(each in by_id for each in trained):
        return []
    return [by_id[each] for each in trained]


def slots_of(
    optimizer: Optimizer, variables: Iterable[Variable]
) -> list[Variable]:
    """Returns what an optimizer remembers of each of these variables.

    Keras keeps it in lists with a place for each variable that is trained.
    """
    inner = inner_optimizer(optimizer)
    trained = inner._trainable_variables
    wanted = {id(tf_variable(each)) for each in variables}
    places = [
        place
        for place, each in enumerate(trained)
        if id(tf_variable(each)) in wanted
    ]
    return [
        slots[place]
        for slots in vars(inner).values()
        if isinstance(slots, list)
        and slots is not trained
        and len(slots) == len(trained)
        for place in places
        if isinstance(slots[place], keras.Variable)
    ]


def is_optimizer(optimizer: Optimizer) -> bool:
    """Whether it is an optimizer that has variables."""
    return isinstance(optimizer, keras.optimizers.Optimizer)


def has_settable_learning_rate(optimizer: Optimizer) -> bool:
    """Whether the learning rate can be changed between steps."""
    return isinstance(getattr(optimizer, "learning_rate", None), keras.Variable)


def learning_rate(optimizer: Optimizer) -> float:
    """Returns the learning rate that an optimizer has now."""
    return scalars.read(tf_variable(optimizer.learning_rate))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Sets the learning rate, past what Keras looks at before it does."""
    scalars.write(tf_variable(optimizer.learning_rate), rate)


def momentums(optimizer: Optimizer) -> list[Variable]:
    """Returns the momentums that past learning rates are multiplied into."""
    found: list[Variable | None] = []
    if isinstance(optimizer, keras.optimizers.SGD):
        found = getattr(optimizer, "momentums", [])
    elif isinstance(optimizer, keras.optimizers.RMSprop):
        found = getattr(optimizer, "_momentums", [])
    return [momentum for momentum in found if momentum is not None]


def can_scale_in_step(optimizer: Optimizer) -> bool:
    """Whether momentum may be scaled by the next update, or must be at once."""
    return (
        hasattr(optimizer, UPDATES)
        and bool(getattr(optimizer, "momentum", 0))
        and not optimizer.gradient_accumulation_steps
    )


def seed_variables(model: Model) -> list[Variable]:
    """Returns the states of the generators that a model draws from.

    Those of its layers and its own, and the one that `keras.random` draws
    from where it is given no seed.
    """
    layers = model._flatten_layers()
    found = [
        *(seed.state for layer in layers for seed in layer._seed_generators),
        _global_seed(),
    ]
    return list({id(variable): variable for variable in found}.values())


def own_seed_variables(model: Model) -> list[Variable]:
    """Returns the `seed_variables` of which each rank has its own state.

    Not that of `keras.random` where its numbers are those of the rank in steps
    alone: between steps, the program draws from it what all ranks are to have.
    """
    return [each for each in seed_variables(model) if not is_shared_seed(each)]


def is_shared_seed(variable: Variable) -> bool:
    """Whether a variable is the state of `keras.random`, and all have one."""
    # Which Keras makes when it is first asked for.
    found = global_state.get_global_attribute("global_seed_generator")
    return (
        chance.is_of_steps
        and found is not None
        and tf_variable(variable) is tf_variable(found.state)
    )


def shared_seed() -> npt.NDArray[Any]:
    """Returns the state of `keras.random`, as all ranks have it."""
    return as_numpy(_global_seed())


def set_shared_seed(value: npt.NDArray[Any]) -> None:
    """Sets the state of `keras.random` to that of another rank."""
    assign(_global_seed(), value)


def _global_seed() -> Variable:
    """Returns the state of the generator of `keras.random`.

    Keras makes it when it is first asked for, and takes a number of Python's
    for that, which the program may have meant for something else.
    """
    before = random.getstate()
    state = global_seed_generator().state
    random.setstate(before)
    return state


def dtype_name(variable: Variable) -> str:
    """Returns the name of a variable's type."""
    return str(keras.backend.standardize_dtype(variable.dtype))


def as_numpy(variable: Variable) -> npt.NDArray[Any]:
    """Returns the value of a variable."""
    value: npt.NDArray[Any] = keras.ops.convert_to_numpy(variable)
    return value


def assign(variable: Variable, value: npt.ArrayLike) -> None:
    """Sets the value of a variable, now."""
    variable.assign(value)


def run(operation: Operation) -> None:
    """Says that Keras 3 always executes eagerly where no function is traced."""
    del operation
    raise RuntimeError(
        "Keras 3 needs eager execution, which this program has switched off "
        "(`tf.compat.v1.disable_eager_execution`). Leave that away, or use "
        "Keras 2."
    )


def tf_variable(variable: Variable) -> Variable:
    """Returns the TensorFlow variable: what optimizers and tapes share."""
    if isinstance(variable, keras.Variable):
        return variable.value
    return variable


def export_alike(made: type, exported: type) -> None:
    """Has a class be saved under the public name of another one, if it has one.

    Args:
        made: A class that stands for the other.
        exported: The one that loading finds.
    """
    name = api_export.get_name_from_symbol(exported)
    if name is not None:
        api_export.REGISTERED_OBJS_TO_NAMES[made] = name


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
    # Keras divides nothing by nothing, and the result is 0.
    del is_part
    patch_once(
        loss_module,
        "reduce_weighted_values",
        functools.partial(_shares_losses, shared=shared),
        "a rank's loss counts with the number it was divided by",
    )


def _shares_losses(
    reduce: Callable[..., Tensor], shared: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    @functools.wraps(reduce)
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
            # Known to be of no rows, as eagerly: Keras has not reduced it.
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


def save_if_due(
    checkpoint: Callback,
    epoch: int,
    batch: int | None,
    logs: Logs,
    save: Callable[[Path], None],
) -> None:
    """Does what `ModelCheckpoint` does when it may be time to save.

    Args:
        checkpoint: A `keras.callbacks.ModelCheckpoint`.
        epoch: Integer, as Keras gives it.
        batch: Integer or `None`, as Keras gives it.
        logs: A dictionary, as Keras gives it.
        save: Called with the path if the model is to be saved.
    """
    path = checkpoint._get_file_path(epoch, batch, logs)
    if checkpoint._should_save_model(epoch, batch, logs, path):
        save(Path(path))


# Before the first epoch, `on_epoch_end` is called as well.
FIRST_EPOCH_OF_PYDATASET = -1


def num_steps(params: dict[str, Any] | None) -> int | None:
    """Returns how many steps an epoch has, of a callback's `params`."""
    return (params or {}).get("steps")


def num_batches(dataset: PyDataset) -> int | None:
    """Returns the number of batches of a `Dataset`, `None` without an end."""
    count: int | None = dataset.num_batches
    return count


def dataset_arguments(dataset: PyDataset) -> dict[str, Any]:
    """Returns the arguments for a `Dataset` that is read like `dataset`."""
    return {
        "workers": dataset.workers,
        "use_multiprocessing": dataset.use_multiprocessing,
        "max_queue_size": dataset.max_queue_size,
    }


def steps_per_execution(model: Model) -> int:
    """Returns how many steps one call of the compiled function trains."""
    return int(model.steps_per_execution)


def set_initial_epoch(model: Model, epoch: int | None) -> None:
    """Has the `fit` that has just begun go on at an epoch, or forgets it.

    As Keras' own `BackupAndRestore` does it.
    """
    model._initial_epoch = epoch


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
        "_moments",
        functools.partial(_synchronizes, moments=moments),
        "`synchronized=True` is over all ranks",
    )


def hook_moments(
    moments: Callable[..., tuple[Tensor, ...] | None], purpose: str
) -> None:
    """Has a function make the moments of `BatchNormalization` layers.

    Args:
        moments: As for `hook_synchronized_moments`. It returns the number of
            elements, too.
        purpose: String, what for.
    """
    patch_once(
        keras.layers.BatchNormalization,
        "_moments",
        functools.partial(_made_by, moments=moments),
        purpose,
    )


def _made_by(
    plain: Callable[..., tuple[Tensor, ...]],
    moments: Callable[..., tuple[Tensor, ...] | None],
) -> Callable[..., tuple[Tensor, ...]]:
    @functools.wraps(plain)
    def made_or_plain(
        self: Layer, inputs: Tensor, mask: Tensor
    ) -> tuple[Tensor, ...]:
        found = moments(self, inputs, self._reduction_axes, mask)
        return plain(self, inputs, mask) if found is None else found[:2]

    return made_or_plain


def _synchronizes(
    plain: Callable[..., tuple[Tensor, ...]],
    moments: Callable[..., tuple[Tensor, ...] | None],
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


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Has `moments_of_all_ranks` called where there are several."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        kwargs["synchronized"] = False
        super().__init__(axis=axis, **kwargs)

    def _moments(self, inputs: Tensor, mask: Tensor) -> Any:
        if self.is_alone():
            return super()._moments(inputs, mask)
        return self.moments_of_all_ranks(inputs, self._reduction_axes, mask)
