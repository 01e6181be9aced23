"""Shares variables and Python objects between ranks."""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from keras_ring import _arrays, _seeds, ops
from keras_ring._autograph import unconverted
from keras_ring._horovod_arguments import takes_horovods
from keras_ring._names import variable_path
from keras_ring._runtime import native, process_sets, topology
from keras_ring._runtime.process_sets import ProcessSet, global_process_set

# What is broadcast at once; more of one variable.
_GROUP_BYTES = 64 << 20

# What a rank sends for the length of an object that it could not pickle.
_NO_PICKLE = -1


@takes_horovods(
    "process_set inplace",
)
@unconverted
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    *,
    fold_rank: bool = True,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives variables the values they have on one rank.

    All ranks (of the process set) must call this with the same number of
    variables, with the same shapes and types in the same order. In eager
    execution that is checked first, so a difference is an error on every rank.

    The states of seed generators are made those of each rank, so that ranks
    draw random numbers of their own: the rank is folded into each seed. For a
    whole model, `kr.broadcast_model` does that and more.

    Args:
        variables: Keras or TensorFlow variables.
        root_rank: Integer, the rank whose values all ranks get: a rank of the
            job.
        fold_rank: Boolean. If `False`, all ranks draw the same random
            numbers, those of `root_rank`. Defaults to `True`.
        process_set: The `ProcessSet` whose members share them. Defaults to
            all ranks.

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
    folded = [v for v in variables if fold_rank and _seeds.is_state(v)]
    return share(variables, root_rank, process_set, folded)


def share(
    variables: list[Any],
    root_rank: int,
    process_set: ProcessSet,
    folded: Iterable[Any],
) -> Any:
    """Does what `broadcast_variables` does.

    Args:
        variables: As there.
        root_rank: As there.
        process_set: As there.
        folded: Those of the variables that are states of generators, into
            which the rank is folded.
    """
    _check_root(root_rank, process_set)
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
    place = _seeds.place_of(topology.rank(), root_rank, process_set)
    to_fold = {id(variable) for variable in folded}
    assigned = []
    for number, group in enumerate(_in_groups(variables)):
        tensors = [tf.convert_to_tensor(variable) for variable in group]
        received = ops.broadcast_group(
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
                value = _seeds.folded(value, place)
            assigned.append(variable.assign(value))
    if tf.executing_eagerly():
        return None
    # A Keras variable tells nothing of its assignment.
    return tf.group(*(each for each in assigned if each is not None))


@takes_horovods(
    "name process_set",
)
@unconverted
def broadcast_(
    variables: Any,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives variables, in place, the values they have on one rank.

    As one atomic operation, without a check of what differs between ranks
    beyond that of `broadcast`. It works eagerly, in a `tf.function` and in a
    TensorFlow 1 graph.

    Args:
        variables: A variable, or a list of variables.
        root_rank: As in `broadcast_variables`.
        name: As in `allreduce`.
        process_set: As in `broadcast_variables`.

    Returns:
        What `assign` returns for the variable, or a list of that: in a
        TensorFlow 1 graph, what to run.

    Raises:
        tf.errors.OpError: As in `allreduce`.

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
    received = ops.broadcast_group(
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
@unconverted
def broadcast_global_variables(
    root_rank: int, *, process_set: ProcessSet = global_process_set
) -> Any:
    """Makes an operation that broadcasts a TensorFlow 1 graph's variables.

    Args:
        root_rank: As in `broadcast_variables`.
        process_set: As in `broadcast_variables`.

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


@takes_horovods("root_rank session name process_set")
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives all ranks an object of one rank.

    The object is pickled. The connections between ranks are authenticated, so
    nobody outside the job can send a pickle.

    Args:
        obj: Any object that pickles. Only that of `root_rank` counts.
        root_rank: Integer, the rank whose object all ranks get: a rank of the
            job. Defaults to `0`.
        name: String, the same on all ranks. Needed only where several threads
            call this at once.
        process_set: As in `broadcast_variables`.

    Returns:
        On `root_rank`, `obj` itself. On all others, a copy of it.

    Raises:
        ValueError: If `root_rank` is not a member.
        RuntimeError: If the object does not pickle, on the ranks other than
            `root_rank`, which raises what the pickler raised.

    Example:
    ```python
    settings = kr.broadcast_object(read_settings() if kr.rank() == 0 else None)
    ```
    """
    return broadcast_object_fn(root_rank, name, process_set)(obj)


@takes_horovods("root_rank session name process_set")
def broadcast_object_fn(
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that gives all ranks an object of one rank.

    The same as `broadcast_object`, for programs that do it again and again: in
    a TensorFlow 1 program, the function keeps its graph and session.

    Args:
        root_rank: As in `broadcast_object`.
        name: As in `broadcast_object`.
        process_set: As in `broadcast_variables`.

    Returns:
        A function of one argument, the object, that returns the root's.

    Raises:
        ValueError: If `root_rank` is not a member.

    Example:
    ```python
    share = kr.broadcast_object_fn(root_rank=0)
    for epoch in range(epochs):
        order = share(shuffled_files() if kr.rank() == 0 else None)
    ```
    """
    _check_root(root_rank, process_set)
    name = name or "broadcast_object"
    is_root = topology.rank() == root_rank
    broadcast_length = _arrays.on_arrays(
        lambda length: ops.broadcast(
            length, root_rank, name=f"{name}/length", process_set=process_set
        ),
        tf.int64,
    )
    broadcast_pickle = _arrays.on_arrays(
        lambda data: ops.broadcast(
            data, root_rank, name=f"{name}/pickle", process_set=process_set
        ),
        tf.uint8,
    )

    def broadcast(obj: Any) -> Any:
        if process_sets.is_alone(process_set):
            return obj
        payload, failure = _pickled(obj) if is_root else (b"", None)
        length = len(payload) if failure is None else _NO_PICKLE
        length = int(broadcast_length(np.array([length]))[0])
        if length == _NO_PICKLE:
            _raise_no_pickle(failure, [root_rank])
        if not is_root:
            payload = bytes(length)
        received = broadcast_pickle(np.frombuffer(payload, np.uint8))
        return obj if is_root else pickle.loads(received.tobytes())

    return broadcast


@takes_horovods("session name process_set")
def allgather_object(
    obj: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives all ranks the objects of all ranks.

    The objects are pickled. The connections between ranks are authenticated,
    so nobody outside the job can send a pickle.

    Args:
        obj: Any object that pickles.
        name: String, the same on all ranks. Needed only where several threads
            call this at once.
        process_set: As in `broadcast_variables`.

    Returns:
        A list of objects, in the order of the ranks.

    Raises:
        RuntimeError: If an object of another rank does not pickle. A rank
            whose own does not raises what the pickler raised.

    Example:
    ```python
    hosts = kr.allgather_object(socket.gethostname())
    ```
    """
    if process_sets.is_alone(process_set):
        return [obj]
    name = name or "allgather_object"
    payload, failure = _pickled(obj)
    length = len(payload) if failure is None else _NO_PICKLE
    lengths = _arrays.on_arrays(
        lambda length: ops.allgather(
            length, name=f"{name}/lengths", process_set=process_set
        ),
        tf.int64,
    )(np.array([length]))
    if _NO_PICKLE in lengths:
        without = np.flatnonzero(lengths == _NO_PICKLE)
        _raise_no_pickle(failure, [process_set.ranks[i] for i in without])
    received = _arrays.on_arrays(
        lambda data: ops.allgather(
            data, name=f"{name}/pickles", process_set=process_set
        ),
        tf.uint8,
    )(np.frombuffer(payload, np.uint8))
    ends = np.cumsum(lengths)
    return [
        pickle.loads(received[end - length : end].tobytes())
        for end, length in zip(ends, lengths, strict=True)
    ]


def require_same(
    name: str,
    what: str,
    lines: list[str],
    compared: list[str] | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Raises the same error on all ranks if their lists differ.

    Args:
        name: String, the name of the exchange, the same on all ranks.
        what: String, what the list is of, for the error.
        lines: The list, as it is shown in the error.
        compared: The list, as it is compared. Defaults to `lines`.
        process_set: Whose members compare. Defaults to all ranks.

    Raises:
        ValueError: If the lists differ between ranks.
    """
    if process_sets.is_alone(process_set):
        return
    compared = lines if compared is None else compared
    digest = hashlib.sha256("\n".join(compared).encode()).digest()
    digests = _arrays.digest_rows(digest, f"{name}/digest", process_set)
    if (digests == digests[0]).all():
        return
    by_rank = allgather_object(
        (lines, compared), f"{name}/differences", process_set
    )
    first_lines, first = by_rank[0]
    place = next(r for r, (_, c) in enumerate(by_rank) if c != first)
    other_lines, second = by_rank[place]
    lowest, other = process_set.ranks[0], process_set.ranks[place]
    position = next(
        (
            i
            for i, (a, b) in enumerate(zip(first, second, strict=False))
            if a != b
        ),
        min(len(first), len(second)),
    )

    def shown(one: list[str]) -> str:
        return one[position] if position < len(one) else "nothing"

    raise ValueError(
        f"The {what} differ between ranks. Rank {lowest} has {len(first)}, "
        f"rank {other} has {len(second)}. They differ first at position "
        f"{position}: rank {lowest} has {shown(first_lines)}, rank {other} has "
        f"{shown(other_lines)}. Build the same model in the same way on "
        "every rank."
    )


def _check_root(root_rank: int, process_set: ProcessSet) -> None:
    if root_rank in process_set.ranks:
        return
    whose = (
        f"{topology.size()} ranks of the job"
        if process_set is global_process_set
        else f"ranks {process_set.ranks} of the process set"
    )
    raise ValueError(
        f"`root_rank` must be one of the {whose}. Received: "
        f"root_rank={root_rank}"
    )


def _dtype(variable: Any) -> Any:
    return tf.as_dtype(variable.dtype)


@functools.cache
def _carried() -> frozenset[str]:
    return frozenset(name for name, _ in native.core().dtypes())


def _in_groups(variables: list[Any]) -> list[list[Any]]:
    """Divides variables, in their order, for one collective each.

    One for each variable takes as many round trips as there are variables;
    one for all, memory for all of them at once.
    """
    groups: list[list[Any]] = []
    room = 0
    for variable in variables:
        # Where the shape is not known, a group of its own is none too large.
        size = _arrays.num_bytes(variable)
        size = _GROUP_BYTES if size is None else size
        if not groups or size > room:
            groups.append([])
            room = _GROUP_BYTES
        groups[-1].append(variable)
        room -= size
    return groups


def _as_carried(tensor: Any) -> Any:
    """Returns the tensor, or its bytes if collectives have no such type."""
    dtype = tensor.dtype
    if dtype.name in _carried():
        return tensor
    if not (dtype.is_integer or dtype.is_floating):
        raise TypeError(
            f"Variables of type {dtype.name} cannot be broadcast. Use "
            "`kr.broadcast_object` for their values."
        )
    return tf.bitcast(tensor, tf.uint8)


def _as_before(received: Any, dtype: Any) -> Any:
    return received if received.dtype == dtype else tf.bitcast(received, dtype)


def _pickled(obj: Any) -> tuple[bytes, Exception | None]:
    # A rank that left here with an error would keep the others waiting: they
    # are told first.
    try:
        return pickle.dumps(obj), None
    except Exception as failure:
        return b"", failure


def _raise_no_pickle(
    failure: Exception | None, ranks: Iterable[int]
) -> NoReturn:
    if failure is not None:
        raise failure
    raise RuntimeError(
        f"The object of rank {', '.join(str(rank) for rank in ranks)} could "
        "not be pickled. That rank says why."
    )
