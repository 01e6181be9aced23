"""Collectives that move NDArrays between the ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.names import eager_name
from keras_ring.core.objects import require_member
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.mxnet import calls, tensors
from keras_ring.mxnet.tensors import NDArray

_ORDER = "name priority process_set"


@takes_horovods(_ORDER)
@described
def allgather(
    tensor: NDArray,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Concatenates the ranks' NDArrays along the first dimension.

    Args:
        tensor: A dense NDArray of shape `[n, ...]`. `n` may differ between
            ranks. {{movable_dtypes}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        An NDArray of all rows, in the order of the ranks.

    Raises:
        TypeError: If collectives do not support the dtype or storage.
        ValueError: If it is a scalar.
        FailedPreconditionError: {{disagreement}}
        UnavailableError: {{lost}}

    Example:
    ```python
    ranks = kr.allgather(mx.nd.array([kr.rank()]), name="ranks")
    ```
    """
    _check_rows([tensor], "allgather")
    name = eager_name("allgather", name)
    handle = calls.start(Kind.allgather, name, [tensor], None, process_set)
    return handle.wait()[0]


@takes_horovods(_ORDER)
@described
def grouped_allgather(
    tensors: Sequence[NDArray],
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[NDArray]:
    """Gathers several NDArrays as one operation.

    Args:
        tensors: List of NDArrays, as in `allgather`.
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        A list of NDArrays.

    Raises:
        TypeError: As in `allgather`, as are further errors.

    Example:
    ```python
    x, y = kr.grouped_allgather([x, y], name="test")
    ```
    """
    if not tensors:
        return []
    _check_rows(tensors, "grouped_allgather")
    name = eager_name("allgather", name)
    handle = calls.start(Kind.allgather, name, list(tensors), None, process_set)
    return handle.wait()


@takes_horovods(_ORDER)
@described
def broadcast(
    tensor: NDArray,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Gives every rank the root's NDArray.

    Args:
        tensor: A dense NDArray of the same shape on every rank; only the
            root's values matter. {{movable_dtypes}}
        root_rank: {{root_rank}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        An NDArray with the root's values.

    Raises:
        TypeError: If collectives do not support the dtype or storage.
        ValueError: If `root_rank` is not a member.
        FailedPreconditionError: {{disagreement}}
        UnavailableError: {{lost}}

    Example:
    ```python
    seeds = kr.broadcast(mx.nd.random.uniform(shape=(4,)), 0, name="seeds")
    ```
    """
    _check([tensor], root_rank, "broadcast", process_set)
    name = eager_name("broadcast", name)
    outputs = [tensors.empty_like(tensor)]
    handle = calls.start(
        Kind.broadcast, name, [tensor], outputs, process_set, root=root_rank
    )
    return handle.wait()[0]


@takes_horovods(_ORDER)
@described
def broadcast_(
    tensor: NDArray,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Gives every rank the root's NDArray, in place.

    Args:
        tensor: As in `broadcast`; it gets the values.
        root_rank: {{root_rank}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        `tensor`.

    Raises:
        TypeError: As in `broadcast`, as are further errors.

    Example:
    ```python
    kr.broadcast_(seeds, 0, name="seeds")
    ```
    """
    _check([tensor], root_rank, "broadcast_", process_set)
    start_broadcast(
        [tensor], root_rank, eager_name("broadcast", name), process_set
    ).wait()
    return tensor


def start_broadcast(
    values: Sequence[NDArray],
    root_rank: int,
    name: str,
    process_set: ProcessSet,
) -> calls.Handle:
    """Submits a broadcast in place of NDArrays that were checked."""
    return calls.start(
        Kind.broadcast, name, values, values, process_set, root=root_rank
    )


@takes_horovods("splits name priority process_set")
@described
def alltoall(
    tensor: NDArray,
    splits: Any = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> NDArray | tuple[NDArray, NDArray]:
    """Gives every rank its rows of each rank's NDArray.

    Args:
        tensor: A dense NDArray of shape `[n, ...]`: first the rows for rank 0
            (of the process set), then those for rank 1, and so on.
            {{movable_dtypes}}
        splits: List or NDArray of integers, how many rows go to each rank.
            Defaults to equal parts.
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        The rows that have come, in the order of the ranks. With `splits`, a
        tuple: these, and how many came from each rank, of int32.

    Raises:
        TypeError: If collectives do not support the dtype or storage.
        ValueError: If it is a scalar.
        InvalidArgumentError: If it cannot be divided so.
        UnavailableError: {{lost}}

    Example:
    ```python
    rows = kr.alltoall(mx.nd.arange(2 * kr.size()), name="rows")
    ```
    """
    _check_rows([tensor], "alltoall")
    if tensors.is_ndarray(splits):
        splits = splits.asnumpy().tolist()
    rows, counts = calls.start(
        Kind.alltoall,
        eager_name("alltoall", name),
        [tensor],
        None,
        process_set,
        splits=[int(each) for each in splits or ()],
    ).wait()
    return rows if splits is None else (rows, counts.astype("int32"))


def _check(
    values: Sequence[NDArray],
    root_rank: int,
    function: str,
    process_set: ProcessSet,
) -> None:
    require_member(root_rank, process_set)
    for value in values:
        tensors.check(value, function)


def _check_rows(values: Sequence[NDArray], function: str) -> None:
    for value in values:
        tensors.check(value, function)
        if not value.shape:
            raise ValueError(
                f"`{function}` is of rows, and a scalar has none. Reshape it "
                "to [1]."
            )
