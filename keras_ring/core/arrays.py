"""Collectives of NumPy arrays, which need no framework.

They return when the result is there. All ranks of the process set must call
them, with the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring.core import operations, process_sets
from keras_ring.core.docstrings import described
from keras_ring.core.names import eager_name
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import SCALED, Adasum, Average, ReduceOp
from keras_ring.core.wire_formats import Compression, WireFormat

Array = npt.NDArray[Any]

_FLOATING = ("float16", "bfloat16", "float32", "float64")


@described
def allreduce(
    array: npt.ArrayLike,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduces an array over all ranks; every rank gets the result.

    Args:
        array: A NumPy array, or an object that converts to one, of the same
            shape on every rank. {{reducible_dtypes}}
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: One of `core.Compression.none`, `core.Compression.fp16`
            and `core.Compression.bf16`. Defaults to `core.Compression.none`.
        process_set: {{process_set}}

    Returns:
        An array of the same shape and dtype, bitwise equal on all ranks.

    Raises:
        TypeError: If the dtype does not support this reduction.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    from keras_ring import core as kr

    kr.init()
    mean = kr.allreduce(np.array([float(kr.rank())]))
    ```
    """
    return _reduced(
        Kind.allreduce,
        array,
        op,
        name,
        (prescale_factor, postscale_factor),
        compression,
        process_set,
    )


@described
def reducescatter(
    array: npt.ArrayLike,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduces an array over all ranks; each rank gets a part of its rows.

    Args:
        array: An array of shape `[n, ...]`, the same on every rank.
            {{reducible_dtypes}}
        op: As in `allreduce`, but not `Adasum`.
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        An array of the rows of this rank. If `n` is not a multiple of the
        number of ranks, the first ranks have one row more.

    Raises:
        TypeError: If the dtype does not support this reduction.
        ValueError: If `array` is a scalar, or `op` is `Adasum`.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    rows = kr.reducescatter(np.ones([kr.size(), 3]), kr.Sum)
    ```
    """
    if op is Adasum:
        raise ValueError(
            "`reducescatter` has no Adasum: what is in a part depends on all "
            "of the array. Take this rank's rows of an `allreduce`."
        )
    _check_rows("reducescatter", "divide", np.asarray(array))
    return _reduced(
        Kind.reducescatter,
        array,
        op,
        name,
        (prescale_factor, postscale_factor),
        compression,
        process_set,
    )


@described
def allgather(
    array: npt.ArrayLike,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Concatenates the ranks' arrays along the first dimension.

    Args:
        array: An array of shape `[n_r, ...]` on rank `r`. `n_r` may differ
            from rank to rank (and may be 0); dtype and the other dimensions
            must agree. {{movable_dtypes}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        An array of shape `[n_0 + n_1 + ..., ...]`: the ranks' arrays in the
        order of the ranks, the same on all of them.

    Raises:
        TypeError: If collectives do not support the dtype.
        ValueError: If `array` is a scalar.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    ranks = kr.allgather(np.array([kr.rank()]))
    ```
    """
    array = np.asarray(array)
    _check_rows("allgather", "concatenate along", array)
    return _run(Kind.allgather, name, [array], process_set)[0]


@described
def broadcast(
    array: npt.ArrayLike,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Gives every rank the root's array.

    Args:
        array: An array of the same dtype and shape on every rank; only the
            root's values matter. {{movable_dtypes}}
        root_rank: {{root_rank}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        The root's array.

    Raises:
        TypeError: If collectives do not support the dtype.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    seed = kr.broadcast(np.random.randint(1 << 30), root_rank=0)
    ```
    """
    array = np.asarray(array)
    return _run(Kind.broadcast, name, [array], process_set, root=root_rank)[0]


def broadcast_in(
    generation: Any,
    array: Array,
    root_rank: int,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Gives every rank the array of a rank of a generation of the job.

    Args:
        generation: The topology that `root_rank` is counted in.
        array: As in `broadcast`.
        root_rank: As in `broadcast`.
        name: String, the name of the collective.
        process_set: As in `broadcast`.

    Returns:
        As `broadcast`.

    Raises:
        AbortedError: If an elastic job has lost the root.
    """
    return _run(
        Kind.broadcast,
        name,
        [array],
        process_set,
        root=root_rank,
        generation=generation.generation,
    )[0]


@described
def alltoall(
    array: npt.ArrayLike,
    splits: Sequence[int] | Array | None = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[Array, Array]:
    """Gives every rank its rows of each rank's array.

    Args:
        array: An array of shape `[n, ...]`: first the rows for rank 0 (of the
            process set), then those for rank 1, and so on. `n` may differ from
            rank to rank; dtype and the other dimensions must agree.
            {{movable_dtypes}}
        splits: A vector of integers of shape `[size]`, the number of rows that
            go to each rank; its sum is `n`. Defaults to the same number for
            each rank, for which `n` must be a multiple of `size`.
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        A tuple of an array of shape `[m_0 + m_1 + ..., ...]`, the `m_r` rows
        that each rank `r` had for this one, in the order of the ranks, and of
        `[m_0, m_1, ...]`, a vector of int64.

    Raises:
        TypeError: If collectives do not support the dtype, or `splits` has
            other values than integers.
        ValueError: If `array` is a scalar, or `splits` is not a vector or is
            empty.
        InvalidArgumentError: On all ranks, if the splits of one rank are
            negative, too many or too few, or do not add up to its rows, or if
            it has no splits and its rows cannot be divided evenly.
        FailedPreconditionError: {{disagreement}}
        UnavailableError: {{lost}}

    Example:
    ```python
    received, counts = kr.alltoall(np.arange(kr.size()))
    ```
    """
    array = np.asarray(array)
    _check_rows("alltoall", "divide", array)
    given = [] if splits is None else _as_splits(splits)
    received, counts = _run(
        Kind.alltoall, name, [array], process_set, splits=given
    )
    return received, counts


@described
def barrier(
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Waits until every rank has called this.

    Args:
        name: {{array_name}}
        process_set: {{process_set}}

    Raises:
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    if kr.rank() == 0:
        download(data)
    kr.barrier()
    ```
    """
    _run(Kind.barrier, name, [], process_set)


def join() -> int:
    """Reports that this rank has no more data, and waits for all to do so.

    Until then, the other ranks' collectives go on without this rank; see
    `keras_ring.join`.

    Returns:
        Integer, the last rank to join, the same on all ranks.

    Raises:
        UnavailableError: If a rank is lost or has left the job before it
            joined.
        FailedPreconditionError: If this rank is joining already.

    Example:
    ```python
    for batch in batches_of_this_rank:  # their number may differ
        total += kr.allreduce(statistics(batch), kr.Sum, name="statistics")
    last_rank = kr.join()
    ```
    """
    note_join()
    return int(operations.run(Kind.join, "join")[0])


# Whether this process has ever called `join`.
_joins: list[bool] = []


def note_join() -> None:
    """Records that this process calls a `join` of any framework."""
    _joins.append(True)


def has_joined() -> bool:
    """Returns whether this process has ever called `join`.

    Either all ranks of a program call it, or none. Ranks that have joined take
    no part in the other ranks' exchanges meanwhile. So other ranks may have
    made an exchange without this one, even if each rank makes it once.
    """
    return bool(_joins)


def allreduce_group(
    arrays: Sequence[Array],
    op: ReduceOp,
    *,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Reduces several arrays, at least one, in one operation.

    Args:
        arrays: List of NumPy arrays, whose dtypes may differ.
        op: As in `allreduce`.
        name: String, the name of the exchange, the same on all ranks.
        process_set: `ProcessSet` of the ranks that take part.

    Returns:
        A list of arrays, bitwise equal on all ranks.
    """
    for array in arrays:
        _check_reducible(Kind.allreduce, op, array)
    return _run(Kind.allreduce, name, arrays, process_set, reduce_op=int(op))


def gather_rows(array: Array, name: str, process_set: ProcessSet) -> Array:
    """Returns the vectors of all ranks as the rows of an array.

    Args:
        array: A vector of the same length on all ranks.
        name: String, the name of the exchange, the same on all ranks.
        process_set: `ProcessSet` of the ranks that take part.

    Returns:
        An array with a row for each rank, without ranks that have joined.
    """
    gathered = allgather(array, name=name, process_set=process_set)
    return gathered.reshape(-1, len(array))


def gather_digests(digest: bytes, name: str, process_set: ProcessSet) -> Array:
    """Returns the bytes of all ranks as rows of an array; see `gather_rows`."""
    return gather_rows(np.frombuffer(digest, np.uint8), name, process_set)


def _reduced(
    kind: Kind,
    array: npt.ArrayLike,
    op: ReduceOp,
    name: str | None,
    factors: tuple[float, float],
    compression: WireFormat,
    process_set: ProcessSet,
) -> Array:
    if not isinstance(op, ReduceOp):
        raise TypeError(
            "`op` must be one of keras_ring.Average, Sum, Min, Max, Product, "
            f"Adasum. Received: {op!r}"
        )
    number = getattr(compression, "native", None)
    if number is None:
        raise TypeError(
            "`compression` must be one of `core.Compression.none`, `fp16` and "
            f"`bf16`. Received: {compression!r}"
        )
    array = np.asarray(array)
    is_floating = array.dtype.name in _FLOATING
    _check_reducible(kind, op, array)
    prescale, postscale = factors
    # If the reduction commutes with factors, its copies apply them.
    is_fused = op in SCALED and is_floating
    if not is_fused:
        array = _scaled(array, prescale)
        prescale = 1.0
    (reduced,) = _run(
        kind,
        name,
        [array],
        process_set,
        reduce_op=int(op),
        compression=number,
        prescale=prescale,
        postscale=postscale if is_fused else 1.0,
    )
    return reduced if is_fused else _scaled(reduced, postscale)


def _run(
    kind: Kind,
    name: str | None,
    arrays: Sequence[Array],
    process_set: ProcessSet,
    **settings: Any,
) -> list[Array]:
    return operations.run(
        kind,
        eager_name(kind.name, name),
        arrays,
        process_sets.id_of(process_set),
        **settings,
    )


def _check_rows(what: str, purpose: str, array: Array) -> None:
    if array.ndim == 0:
        raise ValueError(
            f"`{what}` needs at least one dimension to {purpose}. "
            f"Received a scalar: {array}. Reshape it to [1]."
        )


def _check_reducible(kind: Kind, op: ReduceOp, array: Array) -> None:
    dtype = array.dtype.name
    if op is Adasum and dtype not in _FLOATING:
        raise TypeError(
            f"`{kind.name}` has an Adasum of floating-point arrays only. "
            f"Received an array of {dtype}."
        )
    if dtype not in operations.reducible():
        raise TypeError(
            f"`{kind.name}` has no {op.name} of {dtype} arrays; it reduces "
            f"{', '.join(sorted(operations.reducible()))}."
        )


def _scaled(array: Array, factor: float) -> Array:
    """Returns an array times a number, computed in float64 for integers."""
    if factor == 1.0:
        return array
    if array.dtype.name in _FLOATING:
        scaled: Array = array * array.dtype.type(factor)
        return scaled
    return (array.astype(np.float64) * factor).astype(array.dtype)


def _as_splits(splits: Sequence[int] | Array) -> list[int]:
    vector = np.asarray(splits)
    if vector.dtype.kind not in "iu":
        raise TypeError(
            "`splits` must be a vector of integers. Received: "
            f"{splits} of dtype {vector.dtype.name}"
        )
    if vector.ndim != 1 or len(vector) == 0:
        raise ValueError(
            "`splits` must be a vector with the number of rows for each rank. "
            f"Received: {splits} of shape {vector.shape}"
        )
    return [int(rows) for rows in vector]
