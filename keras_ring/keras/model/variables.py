"""Shares the values of variables between ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import tensorflow as tf

from keras_ring._typing import DType, Operation, Structure, Tensor, Variable
from keras_ring.core import native, process_sets, topology
from keras_ring.core.agreement import require_same
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.objects import require_member
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.model import seeds
from keras_ring.tensorflow import gathers, tensors
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.tensorflow.names import variable_path

# Largest size of a broadcast, unless a single variable is larger.
_GROUP_BYTES = 64 << 20


@takes_horovods(
    "process_set inplace",
)
@do_not_convert
@described
def broadcast_variables(
    variables: Iterable[Variable],
    root_rank: int,
    *,
    fold_rank: bool = True,
    process_set: ProcessSet = global_process_set,
) -> Operation | None:
    """Gives variables the values they have on one rank.

    All ranks (of the process set) must call this with the same number of
    variables, with the same shapes and types in the same order. In eager
    execution this is checked first, so a difference is an error on every rank.

    The rank is folded into the states of seed generators, so that random
    numbers differ between ranks. For a whole model, `kr.broadcast_model` does
    that and more.

    Args:
        variables: Keras or TensorFlow variables.
        root_rank: {{root_rank}}
        fold_rank: Boolean. If `False`, all ranks draw the same random
            numbers, those of `root_rank`. Defaults to `True`.
        process_set: {{process_set}}

    Returns:
        `None` in eager execution. In a graph, the operation: a TensorFlow 1
        program runs it once the variables are initialized; in a `tf.function`
        it runs by itself.

    Raises:
        ValueError: If `root_rank` is not a member, or the variables differ.

    Example:
    ```python
    kr.broadcast_variables(model.variables, root_rank=0)
    kr.broadcast_variables(optimizer.variables, root_rank=0)
    ```
    """
    variables = list(variables)
    folded = [v for v in variables if fold_rank and seeds.is_state(v)]
    return share(variables, root_rank, process_set, folded)


def share(
    variables: list[Variable],
    root_rank: int,
    process_set: ProcessSet,
    folded: Iterable[Variable],
) -> Operation | None:
    """Implements `broadcast_variables`.

    Args:
        variables: As in `broadcast_variables`.
        root_rank: As in `broadcast_variables`.
        process_set: As in `broadcast_variables`.
        folded: The variables that are states of generators, into which the
            rank is folded.
    """
    require_member(root_rank, process_set)
    if process_sets.is_alone(process_set) or not variables:
        return None if tf.executing_eagerly() else tf.no_op()
    described = [(tuple(v.shape), _dtype(v).name) for v in variables]
    if tf.executing_eagerly():
        require_same(
            "broadcast_variables",
            "variables given to `broadcast_variables`",
            [
                f"{variable_path(variable)}: {dtype}{list(shape)}"
                for variable, (shape, dtype) in zip(
                    variables, described, strict=True
                )
            ],
            compared=[f"{dtype}{shape}" for shape, dtype in described],
            process_set=process_set,
        )
    place = seeds.place_of(topology.rank(), root_rank, process_set)
    to_fold = {id(variable) for variable in folded}
    assigned = []
    for number, group in enumerate(_in_groups(variables)):
        tensors = [tf.convert_to_tensor(variable) for variable in group]
        received = gathers.broadcast_group(
            [_as_carried(tensor) for tensor in tensors],
            root_rank,
            f"broadcast_variables/{number}",
            process_set,
        )
        for variable, tensor, value in zip(
            group, tensors, received, strict=True
        ):
            value = _as_before(value, tensor.dtype)
            if id(variable) in to_fold:
                value = seeds.folded(value, place)
            assigned.append(variable.assign(value))
    if tf.executing_eagerly():
        return None
    # `assign` of a Keras variable may return `None`.
    return tf.group(*(each for each in assigned if each is not None))


@takes_horovods(
    "name process_set",
)
@do_not_convert
@described
def broadcast_(
    variables: Structure,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Structure:
    """Gives variables, in place, the values they have on one rank.

    It is one atomic operation, without further checks than those of
    `broadcast`. It works eagerly, in a `tf.function` and in a TensorFlow 1
    graph.

    Args:
        variables: A variable, or a list of variables.
        root_rank: {{root_rank}}
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        The result of `assign` for the variable, or a list of results. In a
        TensorFlow 1 graph these are to be run.

    Raises:
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    kr.broadcast_([weights, step], root_rank=0)
    ```
    """
    is_list = isinstance(variables, list | tuple)
    members = list(variables) if is_list else [variables]
    if not members:
        return []
    tensors = [tf.convert_to_tensor(variable) for variable in members]
    received = gathers.broadcast_group(
        [_as_carried(tensor) for tensor in tensors],
        root_rank,
        name,
        process_set,
    )
    assigned = [
        variable.assign(_as_before(value, tensor.dtype))
        for variable, value, tensor in zip(
            members, received, tensors, strict=True
        )
    ]
    return assigned if is_list else assigned[0]


@takes_horovods(
    "process_set",
)
@do_not_convert
@described
def broadcast_global_variables(
    root_rank: int, *, process_set: ProcessSet = global_process_set
) -> Operation:
    """Makes an operation that broadcasts a TensorFlow 1 graph's variables.

    Args:
        root_rank: {{root_rank}}
        process_set: {{process_set}}

    Returns:
        An operation, to be run once the variables are initialized.

    Raises:
        RuntimeError: In eager execution, where no graph has variables.

    Example:
    ```python
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(kr.broadcast_global_variables(0))
    ```
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "`broadcast_global_variables` makes an operation for the graph "
            "and session of a TensorFlow 1 program. In eager execution use "
            "`kr.broadcast_variables(model.variables, root_rank)`."
        )
    return tf.group(
        *broadcast_(
            tf.compat.v1.global_variables(),
            root_rank,
            name="broadcast_global_variables",
            process_set=process_set,
        )
    )


def _dtype(variable: Variable) -> DType:
    return tf.as_dtype(variable.dtype)


@functools.cache
def _carried() -> frozenset[str]:
    return frozenset(name for name, _ in native.core().dtypes())


def _in_groups(variables: list[Variable]) -> list[list[Variable]]:
    """Divides variables, in their order, for one collective each.

    One collective for each variable would take as many round trips as there
    are variables; a single one would take memory for all of them at once.
    """
    groups: list[list[Variable]] = []
    room = 0
    for variable in variables:
        # A variable of unknown shape may be large, so it gets its own group.
        size = tensors.num_bytes(variable)
        size = _GROUP_BYTES if size is None else size
        if not groups or size > room:
            groups.append([])
            room = _GROUP_BYTES
        groups[-1].append(variable)
        room -= size
    return groups


def _as_carried(tensor: Tensor) -> Tensor:
    """Returns the tensor, or its bytes if collectives lack its type."""
    dtype = tensor.dtype
    if dtype.name in _carried():
        return tensor
    if not (dtype.is_integer or dtype.is_floating):
        raise TypeError(
            f"Variables of type {dtype.name} cannot be broadcast. Use "
            "`kr.broadcast_object` for their values."
        )
    return tf.bitcast(tensor, tf.uint8)


def _as_before(received: Tensor, dtype: DType) -> Tensor:
    return received if received.dtype == dtype else tf.bitcast(received, dtype)
