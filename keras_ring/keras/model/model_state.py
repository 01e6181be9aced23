"""The variables that training continues from, as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Model, Optimizer, Variable
from keras_ring.errors import CheckpointError
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.model.consistency import compared_weights
from keras_ring.keras.model.model_optimizers import (
    build_only_one,
    is_local,
    local_slots,
    optimizers_of,
)

_OVERHEAD = 8192  # bytes for each variable in a file


def check_model(model: Any, function: str) -> None:
    """Raises an error if an object is not a model of the program's Keras.

    Args:
        model: The object.
        function: String, the public name of the function that got it.

    Raises:
        TypeError: If it is something else, such as a path.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`kr.{function}` takes a `keras.Model` as its first argument. "
            f"Received: {model!r} of type {type(model).__name__}."
        )


def state_variables(
    model: Model, optimizers: Iterable[Optimizer] = ()
) -> list[Variable]:
    """Returns the variables that training continues from, in a fixed order.

    These are weights, seed generators and the optimizers' variables, but not
    metrics, whose state belongs to one epoch on one rank.

    Args:
        model: A `keras.Model` that is built. Its optimizer is built here if
            it was not, and is the only one.
        optimizers: Optimizers that are not attributes of the model.

    Raises:
        ValueError: If the model is not built.
    """
    if not compat.is_built(model):
        raise ValueError(
            f"Model {model.name!r} is not built, so it has no state to save or "
            "restore. Call it on a batch, or give its first layer the shape "
            "of the input."
        )
    metrics = {id(variable) for variable in compat.metrics_variables(model)}
    variables = [v for v in model.variables if id(v) not in metrics]
    variables.extend(layer_states(model))
    found = optimizers_of(model, optimizers)
    build_only_one(model, found)
    for optimizer in found.values():
        variables.extend(compat.optimizer_variables(optimizer))
    variables.extend(compat.seed_variables(model))
    return list({id(variable): variable for variable in variables}.values())


def owned_variables(
    model: Model, optimizers: Iterable[Optimizer] = ()
) -> list[int]:
    """Returns indices of the `state_variables` that may differ between ranks.

    They are the weights that were registered as local to each rank, and what
    optimizers remember of these; weights that layers set for themselves, such
    as moving statistics and the states of stateful layers; and the states of
    seed generators.
    """
    found = optimizers_of(model, optimizers)
    compared = {id(weight) for weight in compared_weights(model)}
    owned = {
        id(variable)
        for variable in (
            *(w for w in model.weights if id(w) not in compared),
            *local_slots(model, found),
            *layer_states(model),
            *compat.seed_variables(model),
        )
    }
    return [
        index
        for index, variable in enumerate(state_variables(model, optimizers))
        if id(variable) in owned or is_local(variable, found)
    ]


def layer_states(model: Model) -> list[Variable]:
    """Returns the states of stateful layers, which are not weights."""
    return [
        state
        for layer in model._flatten_layers()
        if getattr(layer, "stateful", False)
        for state in backend.flatten(getattr(layer, "states", None))
        if hasattr(state, "assign")
    ]


def local_variables(model: Model) -> list[Variable]:
    """Returns the variables that differ between ranks within an epoch.

    These are first the gradients that accumulate until the optimizer uses
    them, then the state of the metrics.
    """
    variables = [*accumulators(model), *compat.metrics_variables(model)]
    return list({id(variable): variable for variable in variables}.values())


def accumulators(model: Model) -> list[Variable]:
    """Returns the variables in which an optimizer accumulates gradients."""
    optimizer = getattr(model, "optimizer", None)
    inner = inner_optimizer(optimizer)
    return list(getattr(inner, "_accumulated_gradients", None) or [])


def described(variables: Iterable[Variable]) -> list[dict[str, Any]]:
    """Returns the descriptions of variables for a manifest."""
    return [
        {
            "path": backend.variable_path(variable),
            "dtype": backend.dtype_name(variable),
            "shape": list(variable.shape),
        }
        for variable in variables
    ]


def num_bytes(model: Model) -> int:
    """Returns an upper estimate of the size of a saved model, in bytes.

    It counts weights, the optimizers' variables if they have any yet, and what
    HDF5 and Keras add to each.
    """
    variables = list(model.variables)
    for optimizer in optimizers_of(model).values():
        variables.extend(compat.optimizer_variables(optimizer))
    of_values = sum(backend.num_bytes(variable) or 0 for variable in variables)
    return int(of_values) + _OVERHEAD * (1 + len(variables))


def as_arrays(variables: Iterable[Variable]) -> list[npt.NDArray[Any]]:
    """Returns copies of the values of variables, as NumPy arrays."""
    return [np.array(compat.as_numpy(v)) for v in variables]


def write_arrays(
    contents: Mapping[str, npt.NDArray[Any]], file: BinaryIO
) -> None:
    """Writes arrays of any numeric type, as a `.npz` file of bytes."""
    as_bytes: dict[str, Any] = {
        name: np.ascontiguousarray(array).reshape(-1).view("uint8")
        for name, array in contents.items()
    }
    np.savez(file, **as_bytes)


def numbered(arrays: Iterable[npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Returns arrays by their indices, as names for `write_arrays`."""
    return {str(index): array for index, array in enumerate(arrays)}


def read_bytes(
    file: str | os.PathLike[str] | IO[bytes],
) -> dict[str, npt.NDArray[Any]]:
    """Returns the bytes of arrays that `write_arrays` has written, by name.

    Args:
        file: A path or a file.
    """
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def in_order(
    contents: Mapping[str, npt.NDArray[Any]],
) -> list[npt.NDArray[Any]]:
    """Returns the arrays in the order that they had in `numbered`."""
    return [contents[str(index)] for index in range(len(contents))]


def assign_bytes(
    variables: Sequence[Variable], contents: Sequence[npt.NDArray[Any]]
) -> None:
    """Assigns values that are given as bytes to variables."""
    for variable, content in zip(variables, contents, strict=True):
        present = np.asarray(compat.as_numpy(variable))
        variable.assign(content.view(present.dtype).reshape(present.shape))


def require_same_variables(
    saved: Sequence[dict[str, Any]], variables: Sequence[Variable]
) -> None:
    """Raises an error if a model is not the one that was saved.

    Names are not compared: Keras numbers the layers that a process makes.

    Args:
        saved: Result of `described` for the saved variables.
        variables: The variables of the model.
    """
    present = described(variables)
    for position in range(max(len(saved), len(present))):
        old = saved[position] if position < len(saved) else None
        new = present[position] if position < len(present) else None
        if old and new and _form(old) == _form(new):
            continue
        raise CheckpointError(
            f"The model is not the one that was saved: it has {len(present)} "
            f"variables and the checkpoint {len(saved)}, and at position "
            f"{position} it has {_shown(new)} where the checkpoint has "
            f"{_shown(old)}. Build and compile the model as for the run that "
            "saved it."
        )


def _form(variable: dict[str, Any]) -> tuple[str, list[int]]:
    return variable["dtype"], list(variable["shape"])


def _shown(variable: dict[str, Any] | None) -> str:
    if variable is None:
        return "nothing"
    return f"{variable['path']}: {variable['dtype']}{variable['shape']}"
