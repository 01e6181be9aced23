"""Shares the values of variables between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from keras_ring._typing import Operation, Structure, Variable
from keras_ring.core import process_sets, topology
from keras_ring.core.agreement import require_same
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.objects import require_member
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.model import seeds

# Largest size of a broadcast, unless a single variable is larger.
_GROUP_BYTES = 64 << 20


@takes_horovods(
    "process_set inplace",
)
@backend.unconverted
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
        return backend.all_of([])
    described = [(tuple(v.shape), backend.dtype_name(v)) for v in variables]
    if backend.is_eager():
        require_same(
            "broadcast_variables",
            "variables given to `broadcast_variables`",
            [
                f"{backend.variable_path(variable)}: {dtype}{list(shape)}"
                for variable, (shape, dtype) in zip(
                    variables, described, strict=True
                )
            ],
            compared=[f"{dtype}{shape}" for shape, dtype in described],
            process_set=process_set,
        )
    index = seeds.index_of(topology.rank(), root_rank, process_set)
    to_fold = {id(variable) for variable in folded}
    assigned = []
    for number, group in enumerate(_in_groups(variables)):
        tensors = [backend.as_tensor(variable) for variable in group]
        received = backend.broadcast_group(
            [backend.as_carried(tensor) for tensor in tensors],
            root_rank,
            f"broadcast_variables/{number}",
            process_set,
        )
        for variable, tensor, value in zip(
            group, tensors, received, strict=True
        ):
            value = backend.as_before(value, tensor)
            if id(variable) in to_fold:
                value = seeds.folded(value, index)
            assigned.append(variable.assign(value))
    return backend.all_of(assigned)


@takes_horovods(
    "name process_set",
)
@backend.unconverted
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
    tensors = [backend.as_tensor(variable) for variable in members]
    received = backend.broadcast_group(
        [backend.as_carried(tensor) for tensor in tensors],
        root_rank,
        name,
        process_set,
    )
    assigned = [
        variable.assign(backend.as_before(value, tensor))
        for variable, value, tensor in zip(
            members, received, tensors, strict=True
        )
    ]
    return assigned if is_list else assigned[0]


def _in_groups(variables: list[Variable]) -> list[list[Variable]]:
    """Divides variables, in their order, for one collective each.

    One collective for each variable would take as many round trips as there
    are variables; a single one would take memory for all of them at once.
    """
    groups: list[list[Variable]] = []
    room = 0
    for variable in variables:
        # A variable of unknown shape may be large, so it gets its own group.
        size = backend.num_bytes(variable)
        size = _GROUP_BYTES if size is None else size
        if not groups or size > room:
            groups.append([])
            room = _GROUP_BYTES
        groups[-1].append(variable)
        room -= size
    return groups
