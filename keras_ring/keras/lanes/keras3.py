"""The lane of Keras 3: what `Lane` describes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
from keras.src import api_export
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import global_seed_generator

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
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes import seed_sharing
from keras_ring.keras.lanes.loss_scaling import inner_optimizer

Dataset = keras.utils.PyDataset

METRICS_RESULT_METHOD = "_get_metrics_result_or_logs"

BACKUP_WRITES = ("_save_model", "on_train_end")

COMPILED_METRICS = "_compile_metrics"

AGGREGATIONS = (
    '`add_variable(..., aggregation="mean")`, or "only_first_replica"'
)

PROGBAR_ARGUMENTS: dict[str, Any] = {}

TELLS_DIVISORS = True

UPDATES = "_backend_update_step"

SYNCHRONIZED = False


def is_built(model: Model) -> bool:
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
    if type(model).call is not keras.Model.call:
        try:
            with backend.outside_of_traces():
                model._symbolic_build(data_batch=batch)
            return
        except RuntimeError:
            if is_built(model):
                return
    # Traced and not run: Keras makes variables outside of all traces.
    backend.trace(train_step or model.train_step, batch)


def declared_trainable(layer: Layer) -> list[Variable]:
    return list(layer._trainable_variables)


def metrics_variables(model: Model) -> list[Variable]:
    return list(model.metrics_variables)


def aggregation(variable: Variable) -> str:
    found = variable.aggregation
    return found if found in ("sum", "mean") else "none"


def built_optimizer(
    optimizer: Optimizer, variables: Sequence[Variable]
) -> Optimizer:
    if not optimizer.built:
        optimizer.build(variables)
    return optimizer


def optimizer_variables(optimizer: Optimizer) -> list[Variable]:
    return list(optimizer.variables)


def trained_variables(
    optimizer: Optimizer, candidates: Iterable[Variable]
) -> list[Variable]:
    inner = inner_optimizer(optimizer)
    by_id = {id(backend.storage(each)): each for each in candidates}
    trained = [id(backend.storage(each)) for each in inner._trainable_variables]
    if not all(each in by_id for each in trained):
        return []
    return [by_id[each] for each in trained]


def slots_of(
    optimizer: Optimizer, variables: Iterable[Variable]
) -> list[Variable]:
    """Returns the slot variables that an optimizer has for these variables.

    Keras keeps slots in lists with an element for each trained variable.
    """
    inner = inner_optimizer(optimizer)
    trained = inner._trainable_variables
    wanted = {id(backend.storage(each)) for each in variables}
    indexes = [
        index
        for index, each in enumerate(trained)
        if id(backend.storage(each)) in wanted
    ]
    return [
        slots[index]
        for slots in vars(inner).values()
        if isinstance(slots, list)
        and slots is not trained
        and len(slots) == len(trained)
        for index in indexes
        if isinstance(slots[index], keras.Variable)
    ]


def is_optimizer(optimizer: Optimizer) -> bool:
    return isinstance(optimizer, keras.optimizers.Optimizer)


def has_settable_learning_rate(optimizer: Optimizer) -> bool:
    return isinstance(getattr(optimizer, "learning_rate", None), keras.Variable)


def learning_rate(optimizer: Optimizer) -> float:
    return backend.read_scalar(optimizer.learning_rate)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Sets the learning rate, without the checks of Keras."""
    backend.write_scalar(optimizer.learning_rate, rate)


def momentums(optimizer: Optimizer) -> list[Variable]:
    found: list[Variable | None] = []
    if isinstance(optimizer, keras.optimizers.SGD):
        found = getattr(optimizer, "momentums", [])
    elif isinstance(optimizer, keras.optimizers.RMSprop):
        found = getattr(optimizer, "_momentums", [])
    return [momentum for momentum in found if momentum is not None]


def can_scale_in_step(optimizer: Optimizer) -> bool:
    return (
        hasattr(optimizer, UPDATES)
        and bool(getattr(optimizer, "momentum", 0))
        and not optimizer.gradient_accumulation_steps
    )


def seed_variables(model: Model) -> list[Variable]:
    """Returns the states of the generators that a model draws from.

    These are the generators of its layers, its own, and the one that
    `keras.random` draws from if no seed is given.
    """
    layers = model._flatten_layers()
    found = [
        *(seed.state for layer in layers for seed in layer._seed_generators),
        _global_seed(),
    ]
    return list({id(variable): variable for variable in found}.values())


def own_seed_variables(model: Model) -> list[Variable]:
    return [each for each in seed_variables(model) if not is_shared_seed(each)]


def is_shared_seed(variable: Variable) -> bool:
    """Returns whether a variable is the state of `keras.random`, and shared."""
    # Keras makes the generator when it is first asked for.
    found = global_state.get_global_attribute("global_seed_generator")
    return (
        seed_sharing.is_shared()
        and found is not None
        and backend.storage(variable) is backend.storage(found.state)
    )


def shared_seed() -> npt.NDArray[Any]:
    """Returns the value of the state of `keras.random`."""
    return as_numpy(_global_seed())


def set_shared_seed(value: npt.NDArray[Any]) -> None:
    assign(_global_seed(), value)


def _global_seed() -> Variable:
    """Returns the state of the generator of `keras.random`.

    Keras makes it when it is first asked for, and draws a number from Python's
    generator for that. The state of that generator is restored, because the
    program may depend on it.
    """
    before = random.getstate()
    state = global_seed_generator().state
    random.setstate(before)
    return state


def as_numpy(variable: Variable) -> npt.NDArray[Any]:
    found = backend.value_of(variable)
    value: npt.NDArray[Any] = keras.ops.convert_to_numpy(
        variable if found is None else found
    )
    return value


def assign(variable: Variable, value: npt.ArrayLike) -> None:
    variable.assign(value)


def run(operation: Operation) -> None:
    """Raises an error: Keras 3 needs eager execution."""
    del operation
    raise RuntimeError(
        "Keras 3 needs eager execution, which this program has switched off "
        "(`tf.compat.v1.disable_eager_execution`). Leave that away, or use "
        "Keras 2."
    )


def export_alike(made: type, exported: type) -> None:
    name = api_export.get_name_from_symbol(exported)
    if name is not None:
        api_export.REGISTERED_OBJS_TO_NAMES[made] = name


def save_if_due(
    checkpoint: Callback,
    epoch: int,
    batch: int | None,
    logs: Logs,
    save: Callable[[Path], None],
) -> None:
    path = checkpoint._get_file_path(epoch, batch, logs)
    if checkpoint._should_save_model(epoch, batch, logs, path):
        save(Path(path))


# Keras 3 calls `on_epoch_end` once before the first epoch as well.
FIRST_EPOCH_OF_PYDATASET = -1


def num_steps(params: dict[str, Any] | None) -> int | None:
    return (params or {}).get("steps")


def num_batches(dataset: PyDataset) -> int | None:
    """Returns the number of batches of a `Dataset`, or `None` if infinite."""
    count: int | None = dataset.num_batches
    return count


def dataset_arguments(dataset: PyDataset) -> dict[str, Any]:
    return {
        "workers": dataset.workers,
        "use_multiprocessing": dataset.use_multiprocessing,
        "max_queue_size": dataset.max_queue_size,
    }


def steps_per_execution(model: Model) -> int:
    return int(model.steps_per_execution)


def set_initial_epoch(model: Model, epoch: int | None) -> None:
    """Sets the epoch at which the `fit` that has just begun continues.

    Keras' own `BackupAndRestore` does it in the same way.

    Args:
        model: A `keras.Model`.
        epoch: Integer, the epoch, or `None` to reset it.
    """
    model._initial_epoch = epoch


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """A layer that calls `moments_of_all_ranks` unless a rank is alone."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        kwargs["synchronized"] = False
        super().__init__(axis=axis, **kwargs)

    def _moments(self, inputs: Tensor, mask: Tensor) -> Any:
        if self.is_alone():
            return super()._moments(inputs, mask)
        return self.moments_of_all_ranks(inputs, self._reduction_axes, mask)
