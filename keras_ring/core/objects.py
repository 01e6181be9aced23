"""Collectives of Python objects, which are sent as pickles."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from keras_ring.core import arrays, process_sets, topology
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set

# The length that a rank sends for an object that it could not pickle.
_NO_PICKLE = -1
# Of bytes, in front of them.
_LENGTH = struct.Struct("<q")


@takes_horovods("root_rank session name process_set")
@described
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
        obj: Any object that pickles. Only that of `root_rank` is used.
        root_rank: {{root_rank}} Defaults to `0`.
        name: {{object_name}}
        process_set: {{process_set}}

    Returns:
        On `root_rank`, `obj` itself. On all others, a copy of it.

    Raises:
        ValueError: If `root_rank` is not a member.
        RuntimeError: If the object does not pickle, on all ranks but
            `root_rank`, where the exception of the pickler is raised.

    Example:
    ```python
    settings = kr.broadcast_object(read_settings() if kr.rank() == 0 else None)
    ```
    """
    return broadcast_object_fn(root_rank, name, process_set)(obj)


@takes_horovods("root_rank session name process_set")
@described
def broadcast_object_fn(
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that gives all ranks an object of one rank.

    The function does the same as `broadcast_object` with these arguments.

    Args:
        root_rank: {{root_rank}} Defaults to `0`.
        name: {{object_name}}
        process_set: {{process_set}}

    Returns:
        A function of one argument, the object, that returns that of the root.

    Raises:
        ValueError: If `root_rank` is not a member.

    Example:
    ```python
    share = kr.broadcast_object_fn(root_rank=0)
    for epoch in range(epochs):
        order = share(shuffled_files() if kr.rank() == 0 else None)
    ```
    """
    require_member(root_rank, process_set)

    def broadcast(obj: Any) -> Any:
        return broadcast_in(
            topology.topology(),
            obj,
            root_rank,
            name or "broadcast_object",
            process_set,
        )

    return broadcast


def broadcast_in(
    generation: Any,
    obj: Any,
    root_rank: int,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives all ranks an object of a rank of a generation of the job.

    An elastic job may lose a rank at any moment, and counts the others anew.
    So what a caller decides by its rank, and this, need the same generation.

    Args:
        generation: The topology that `root_rank` is counted in.
        obj: As in `broadcast_object`.
        root_rank: As in `broadcast_object`.
        name: String, the name of the exchange.
        process_set: As in `broadcast_object`.

    Returns:
        As `broadcast_object`.

    Raises:
        AbortedError: If the job has lost the root.
        RuntimeError: As in `broadcast_object`.
    """
    is_root = generation.rank == root_rank
    if is_root and process_sets.is_alone(process_set):
        return obj

    def broadcast(array: arrays.Array, part: str) -> arrays.Array:
        return arrays.broadcast_in(
            generation, array, root_rank, f"{name}/{part}", process_set
        )

    payload, failure = _pickled(obj) if is_root else (b"", None)
    length = len(payload) if failure is None else _NO_PICKLE
    length = int(broadcast(np.array(length, np.int64), "length"))
    if length == _NO_PICKLE:
        _raise_no_pickle(failure, [root_rank])
    if not is_root:
        payload = bytes(length)
    received = broadcast(np.frombuffer(payload, np.uint8), "pickle")
    return obj if is_root else pickle.loads(received.tobytes())


@takes_horovods("session name process_set")
@described
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
        name: {{object_name}}
        process_set: {{process_set}}

    Returns:
        A list of objects, in the order of the ranks.

    Raises:
        RuntimeError: If an object of another rank does not pickle. On a rank
            whose own object does not pickle, the exception of the pickler is
            raised.

    Example:
    ```python
    hosts = kr.allgather_object(socket.gethostname())
    ```
    """
    if process_sets.is_alone(process_set):
        return [obj]
    payload, failure = _pickled(obj)
    pickles = allgather_bytes(
        payload if failure is None else None,
        f"{name or 'allgather_object'}/pickles",
        process_set,
    )
    without = [index for index, each in enumerate(pickles) if each is None]
    if without:
        _raise_no_pickle(failure, [process_set.ranks[i] for i in without])
    return [pickle.loads(each) for each in pickles if each is not None]


def allgather_bytes(
    data: bytes | None,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> list[bytes | None]:
    """Gives all ranks the bytes of all ranks, by one collective.

    In an elastic job, lengths and bytes of two collectives could be those of
    other ranks.

    Args:
        data: Bytes, or `None`, which the others are told.
        name: String, the name of the collective.
        process_set: As in `allgather_object`.

    Returns:
        A list, in the order of the ranks.
    """
    length = _NO_PICKLE if data is None else len(data)
    message = _LENGTH.pack(length) + (data or b"")
    received = arrays.allgather(
        np.frombuffer(message, np.uint8), name=name, process_set=process_set
    ).tobytes()
    found: list[bytes | None] = []
    at = 0
    while at < len(received):
        (length,) = _LENGTH.unpack_from(received, at)
        at += _LENGTH.size
        if length == _NO_PICKLE:
            found.append(None)
            continue
        found.append(received[at : at + length])
        at += length
    return found


def as_bytes(obj: Any) -> bytes | None:
    """Returns the pickle of an object, or `None` if it does not unpickle."""
    try:
        pickled = pickle.dumps(obj)
        # Some exceptions pickle, but do not unpickle.
        pickle.loads(pickled)
    except Exception:
        return None
    return pickled


def require_member(root_rank: int, process_set: ProcessSet) -> None:
    """Raises a `ValueError` if a rank is not a member of a process set."""
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


def _pickled(obj: object) -> tuple[bytes, Exception | None]:
    # Keep the error for later: a rank that raised it here would keep the others
    # waiting, so they are told first.
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
