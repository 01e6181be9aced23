"""Shares variables and Python objects between ranks."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from keras_ring import basics, ops
from keras_ring._names import variable_path

# The types that `ops.broadcast` carries. Others travel as bytes.
_BROADCAST_DTYPES = frozenset(
    (
        tf.float16,
        tf.bfloat16,
        tf.float32,
        tf.float64,
        tf.int32,
        tf.int64,
        tf.uint8,
        tf.int8,
        tf.bool,
    )
)

# What a rank sends for the length of an object that it could not pickle.
_NO_PICKLE = -1


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Gives variables the values they have on one rank.

    All ranks must call this with the same number of variables, with the same
    shapes and types in the same order. That is checked first, so a difference
    is an error on every rank.

    Args:
        variables: Keras or TensorFlow variables.
        root_rank: Integer, the rank whose values all ranks get.

    Raises:
        ValueError: If `root_rank` is not a rank, or the variables differ.

    Example:
    ```python
    kr.broadcast_variables(model.variables, root_rank=0)
    kr.broadcast_variables(optimizer.variables, root_rank=0)
    ```
    """
    variables = list(variables)
    _check_root(root_rank)
    if basics.size() == 1 or not variables:
        return
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
        )
    for position, variable in enumerate(variables):
        variable.assign(
            _broadcast_any_dtype(
                tf.convert_to_tensor(variable),
                root_rank,
                f"broadcast_variables/{position}",
            )
        )


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None
) -> Any:
    """Gives all ranks an object of one rank.

    The object is pickled. The connections between ranks are authenticated, so
    nobody outside the job can send a pickle.

    Args:
        obj: Any object that pickles. Only that of `root_rank` counts.
        root_rank: Integer, the rank whose object all ranks get. Defaults to
            `0`.
        name: String, the same on all ranks. Needed only where several threads
            call this at once.

    Returns:
        On `root_rank`, `obj` itself. On all others, a copy of it.

    Raises:
        ValueError: If `root_rank` is not a rank.
        RuntimeError: If the object does not pickle, on the ranks other than
            `root_rank`, which raises what the pickler raised.

    Example:
    ```python
    settings = kr.broadcast_object(read_settings() if kr.rank() == 0 else None)
    ```
    """
    _check_root(root_rank)
    if basics.size() == 1:
        return obj
    name = name or "broadcast_object"
    is_root = basics.rank() == root_rank
    payload, failure = _pickled(obj) if is_root else (b"", None)
    length = len(payload) if failure is None else _NO_PICKLE
    length = int(
        ops.broadcast(
            tf.constant([length], tf.int64), root_rank, name=f"{name}/length"
        )[0]
    )
    if length == _NO_PICKLE:
        _raise_no_pickle(failure, [root_rank])
    if not is_root:
        payload = bytes(length)
    received = ops.broadcast(
        _as_bytes(payload), root_rank, name=f"{name}/pickle"
    )
    return obj if is_root else pickle.loads(received.numpy().tobytes())


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Gives all ranks the objects of all ranks.

    The objects are pickled. The connections between ranks are authenticated,
    so nobody outside the job can send a pickle.

    Args:
        obj: Any object that pickles.
        name: String, the same on all ranks. Needed only where several threads
            call this at once.

    Returns:
        A list of objects, by rank.

    Raises:
        RuntimeError: If an object of another rank does not pickle. A rank
            whose own does not raises what the pickler raised.

    Example:
    ```python
    hosts = kr.allgather_object(socket.gethostname())
    ```
    """
    if basics.size() == 1:
        return [obj]
    name = name or "allgather_object"
    payload, failure = _pickled(obj)
    length = len(payload) if failure is None else _NO_PICKLE
    lengths = ops.allgather(
        tf.constant([length], tf.int64), name=f"{name}/lengths"
    ).numpy()
    if _NO_PICKLE in lengths:
        _raise_no_pickle(failure, np.flatnonzero(lengths == _NO_PICKLE))
    received = ops.allgather(_as_bytes(payload), name=f"{name}/pickles").numpy()
    ends = np.cumsum(lengths)
    return [
        pickle.loads(received[end - length : end].tobytes())
        for end, length in zip(ends, lengths, strict=True)
    ]


def require_same(
    name: str, what: str, lines: list[str], compared: list[str] | None = None
) -> None:
    """Raises the same error on all ranks if their lists differ.

    Args:
        name: String, the name of the exchange, the same on all ranks.
        what: String, what the list is of, for the error.
        lines: The list, as it is shown in the error.
        compared: The list, as it is compared. Defaults to `lines`.

    Raises:
        ValueError: If the lists differ between ranks.
    """
    if basics.size() == 1:
        return
    compared = lines if compared is None else compared
    digest = hashlib.sha256("\n".join(compared).encode()).digest()
    digests = ops.allgather(_as_bytes(digest), name=f"{name}/digest").numpy()
    digests = digests.reshape(basics.size(), -1)
    if (digests == digests[0]).all():
        return
    by_rank = allgather_object((lines, compared), name=f"{name}/differences")
    first_lines, first = by_rank[0]
    other = next(r for r, (_, c) in enumerate(by_rank) if c != first)
    other_lines, second = by_rank[other]
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
        f"The {what} differ between ranks. Rank 0 has {len(first)}, rank "
        f"{other} has {len(second)}. They differ first at position "
        f"{position}: rank 0 has {shown(first_lines)}, rank {other} has "
        f"{shown(other_lines)}. Build the same model in the same way on "
        "every rank."
    )


def _check_root(root_rank: int) -> None:
    if not 0 <= root_rank < basics.size():
        raise ValueError(
            f"`root_rank` must be one of the {basics.size()} ranks of the job. "
            f"Received: root_rank={root_rank}"
        )


def _dtype(variable: Any) -> Any:
    return tf.as_dtype(variable.dtype)


def _broadcast_any_dtype(tensor: Any, root_rank: int, name: str) -> Any:
    dtype = tensor.dtype
    if dtype in _BROADCAST_DTYPES:
        return ops.broadcast(tensor, root_rank, name=name)
    if not (dtype.is_integer or dtype.is_floating or dtype.is_complex):
        raise TypeError(
            f"Variables of type {dtype.name} cannot be broadcast. Use "
            "`kr.broadcast_object` for their values."
        )
    received = ops.broadcast(tf.bitcast(tensor, tf.uint8), root_rank, name=name)
    return tf.bitcast(received, dtype)


def _as_bytes(payload: bytes) -> Any:
    return tf.constant(np.frombuffer(payload, np.uint8))


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
