"""The variables that training continues from, as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf

from keras_ring._compat import own
from keras_ring._names import variable_path
from keras_ring.errors import CheckpointError

_OVERHEAD = 8192  # bytes for each variable in a file


def state_variables(model: Any) -> list[Any]:
    """Returns what all ranks have in common, in a fixed order.

    Weights, seed generators and the optimizer's variables; not the metrics,
    whose state is that of one epoch on one rank.

    Args:
        model: A `keras.Model` that is built. Its optimizer is built here if
            it was not.

    Raises:
        ValueError: If the model is not built.
    """
    if not own.is_built(model):
        raise ValueError(
            f"Model {model.name!r} is not built, so it has no state to save or "
            "restore. Call it on a batch, or give its first layer the shape "
            "of the input."
        )
    metrics = {id(variable) for variable in own.metrics_variables(model)}
    variables = [v for v in model.variables if id(v) not in metrics]
    optimizer = getattr(model, "optimizer", None)
    if own.is_optimizer(optimizer):
        own.built_optimizer(optimizer, model.trainable_variables)
        variables.extend(own.optimizer_variables(optimizer))
    variables.extend(own.seed_variables(model))
    return list({id(variable): variable for variable in variables}.values())


def local_variables(model: Any) -> list[Any]:
    """Returns what each rank has of its own within an epoch.

    The gradients that accumulate until the optimizer uses them, and then the
    state of the metrics.
    """
    variables = [*accumulators(model), *own.metrics_variables(model)]
    return list({id(variable): variable for variable in variables}.values())


def accumulators(model: Any) -> list[Any]:
    """Returns the variables in which an optimizer accumulates gradients."""
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return list(getattr(inner, "_accumulated_gradients", None) or [])


def described(variables: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns what a manifest says of variables."""
    return [
        {
            "path": variable_path(variable),
            "dtype": own.dtype_name(variable),
            "shape": list(variable.shape),
        }
        for variable in variables
    ]


def num_bytes(model: Any) -> int:
    """Returns about how much a file of a model may hold, and rather more.

    Weights, the optimizer's variables if it has any yet, and what HDF5 and
    Keras add to each.
    """
    variables = list(model.variables)
    optimizer = getattr(model, "optimizer", None)
    if own.is_optimizer(optimizer):
        variables.extend(own.optimizer_variables(optimizer))
    of_values = sum(
        math.prod(variable.shape) * tf.as_dtype(own.dtype_name(variable)).size
        for variable in variables
    )
    return int(of_values) + _OVERHEAD * (1 + len(variables))


def as_arrays(variables: Iterable[Any]) -> list[Any]:
    """Returns the values of variables, as NumPy arrays."""
    return [np.asarray(own.as_numpy(v)) for v in variables]


def write_arrays(arrays: Sequence[Any], file: BinaryIO) -> None:
    """Writes arrays of any type of number, as a `.npz` of bytes."""
    contents: dict[str, Any] = {
        str(position): np.ascontiguousarray(array).reshape(-1).view("uint8")
        for position, array in enumerate(arrays)
    }
    np.savez(file, **contents)


def read_bytes(file: Any) -> list[Any]:
    """Returns the bytes of what `write_arrays` wrote.

    Args:
        file: A path or a file.
    """
    with np.load(file, allow_pickle=False) as stored:
        return [stored[str(position)] for position in range(len(stored.files))]


def assign_bytes(variables: Sequence[Any], contents: Sequence[Any]) -> None:
    """Gives variables the values whose bytes these are."""
    for variable, content in zip(variables, contents, strict=True):
        present = np.asarray(own.as_numpy(variable))
        variable.assign(content.view(present.dtype).reshape(present.shape))


def require_same_variables(
    saved: Sequence[dict[str, Any]], variables: Sequence[Any]
) -> None:
    """Raises an error if a model is not the one that was saved.

    Names are not compared: Keras numbers the layers that a process makes.

    Args:
        saved: What `described` returned for those that were saved.
        variables: Those of the model.
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
