"""Collectives that move PyTorch's tensors between the ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from keras_ring.core import objects
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.torch import derivatives, gather_calls, reduction_calls, tensors
from keras_ring.torch.operations import Handle, name_of

_CONCATENATE = "concatenate along"


@takes_horovods("name process_set")
@described
def allgather(
    tensor: Tensor,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Concatenates the ranks' tensors along the first dimension.

    It has a derivative: this rank's rows of the mean of the ranks' gradients.

    Args:
        tensor: A dense tensor of shape `[n_r, ...]` on rank `r`. `n_r` may
            differ from rank to rank (and may be 0); dtype and the other
            dimensions must agree. {{movable_dtypes}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        A tensor of shape `[n_0 + n_1 + ..., ...]`: the ranks' tensors in the
        order of the ranks, the same on all of them.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `tensor` is a scalar.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    ranks = kr.allgather(torch.tensor([kr.rank()]))
    ```
    """
    gather_calls.check([tensor], "allgather", _CONCATENATE)
    name = name_of(Kind.allgather, name, is_async=False)
    return derivatives.allgather([tensor], name, process_set)[0]


@takes_horovods("name process_set")
@described
def allgather_async(
    tensor: Tensor,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to concatenate the ranks' tensors along the first dimension.

    Args:
        tensor: As in `allgather`. It must not change before the end.
        name: {{async_name}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the tensor.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `tensor` is a scalar.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.allgather_async(predictions, name="predictions")
    all_predictions = kr.synchronize(handle)
    ```
    """
    gather_calls.check([tensor], "allgather_async", _CONCATENATE)
    name = name_of(Kind.allgather, name, is_async=True)
    handle = gather_calls.allgather([tensor], name, process_set)
    return handle.then(lambda results: results[0])


@takes_horovods("name process_set")
@described
def grouped_allgather(
    tensors: Sequence[Tensor],
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Concatenates several tensors of the ranks as one operation.

    Args:
        tensors: A list of tensors of one device, which may be empty; dtypes may
            differ. Each as in `allgather`.
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        A list of tensors, each as `allgather` returns it.

    Raises:
        TypeError: If collectives do not support a dtype or layout.
        ValueError: If one of the tensors is a scalar, or they are on several
            devices.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    labels, scores = kr.grouped_allgather([labels, scores], name="results")
    ```
    """
    gather_calls.check(tensors, "grouped_allgather", _CONCATENATE)
    reduction_calls.check_devices(tensors, "grouped_allgather")
    if not tensors:
        return []
    name = name_of(Kind.allgather, name, is_async=False)
    return derivatives.allgather(tensors, name, process_set)


@takes_horovods("name process_set")
@described
def grouped_allgather_async(
    tensors: Sequence[Tensor],
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to concatenate several tensors of the ranks as one operation.

    Args:
        tensors: As in `grouped_allgather`, but not empty. They must not change
            before the end.
        name: {{async_name}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the list of
        results.

    Raises:
        TypeError: If collectives do not support a dtype or layout.
        ValueError: If one of the tensors is a scalar, they are on several
            devices, or there is none.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.grouped_allgather_async([labels, scores], name="results")
    labels, scores = kr.synchronize(handle)
    ```
    """
    gather_calls.check(tensors, "grouped_allgather_async", _CONCATENATE)
    reduction_calls.check_devices(tensors, "grouped_allgather_async")
    if not tensors:
        raise ValueError(
            "`grouped_allgather_async` takes a list that is not empty."
        )
    name = name_of(Kind.allgather, name, is_async=True)
    return gather_calls.allgather(tensors, name, process_set)


@takes_horovods("name process_set")
@described
def broadcast(
    tensor: Tensor,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Gives every rank the root's tensor.

    It has a derivative: the mean of the ranks' gradients on the root, and zeros
    on the others.

    Args:
        tensor: A dense tensor of the same dtype and shape on every rank; only
            the root's values matter. {{movable_dtypes}}
        root_rank: {{root_rank}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        A tensor with the root's values.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `root_rank` is not a member.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    order = kr.broadcast(torch.randperm(1000), root_rank=0, name="order")
    ```
    """
    _check_broadcast(tensor, root_rank, "broadcast", process_set)
    name = name_of(Kind.broadcast, name, is_async=False)
    return derivatives.broadcast(tensor, root_rank, name, process_set)


@takes_horovods("name process_set")
@described
def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to give every rank the root's tensor.

    Args:
        tensor: As in `broadcast`. It must not change before the end.
        root_rank: {{root_rank}}
        name: {{async_name}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the tensor.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `root_rank` is not a member.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.broadcast_async(order, root_rank=0, name="order")
    order = kr.synchronize(handle)
    ```
    """
    _check_broadcast(tensor, root_rank, "broadcast_async", process_set)
    name = name_of(Kind.broadcast, name, is_async=True)
    handle = gather_calls.broadcast([tensor], root_rank, name, process_set)
    return handle.then(lambda results: results[0])


@takes_horovods("name process_set")
@described
def broadcast_(
    tensor: Tensor,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Gives every rank the root's tensor, in place.

    Args:
        tensor: As in `broadcast`. It is overwritten on other ranks.
        root_rank: {{root_rank}}
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        `tensor`.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `root_rank` is not a member.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    kr.broadcast_(model.embedding.weight.data, root_rank=0, name="embedding")
    ```
    """
    _check_broadcast(tensor, root_rank, "broadcast_", process_set)
    name = name_of(Kind.broadcast, name, is_async=False)
    handle = gather_calls.broadcast(
        [tensor], root_rank, name, process_set, in_place=True
    )
    handle.wait()
    return tensor


@takes_horovods("name process_set")
@described
def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to give every rank the root's tensor, in place.

    Args:
        tensor: As in `broadcast`. It must not be used before the end.
        root_rank: {{root_rank}}
        name: {{async_name}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns `tensor`. A tensor
        that is not contiguous has its values after `synchronize`, not before.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `root_rank` is not a member.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.broadcast_async_(table, root_rank=0, name="table")
    kr.synchronize(handle)
    ```
    """
    _check_broadcast(tensor, root_rank, "broadcast_async_", process_set)
    name = name_of(Kind.broadcast, name, is_async=True)
    handle = gather_calls.broadcast(
        [tensor], root_rank, name, process_set, in_place=True
    )
    return handle.then(lambda results: results[0])


@takes_horovods("splits name process_set")
@described
def alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor | tuple[Tensor, Tensor]:
    """Gives every rank its rows of each rank's tensor.

    It has a derivative: the gradients of the rows go back to where the rows
    came from.

    Args:
        tensor: A dense tensor of shape `[n, ...]`: first the rows for rank 0
            (of the process set), then those for rank 1, and so on. `n` may
            differ from rank to rank; dtype and the other dimensions must agree.
            {{movable_dtypes}}
        splits: A vector of integers of shape `[size]`, the number of rows that
            go to each rank; its sum is `n`. Defaults to the same number for
            each rank, for which `n` must be a multiple of `size`.
        name: {{array_name}}
        process_set: {{process_set}}

    Returns:
        A tensor of shape `[m_0 + m_1 + ..., ...]`: the `m_r` rows that each
        rank `r` had for this one, in the order of the ranks. With `splits`, a
        tuple of it and of `[m_0, m_1, ...]`, a tensor of int32 in host memory.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `tensor` is a scalar, or `splits` is not a vector of
            integers.
        InvalidArgumentError: On all ranks, if the splits of one rank are
            negative, too many or too few, or do not add up to its rows, or if
            it has no splits and its rows cannot be divided evenly.
        FailedPreconditionError: {{disagreement}}
        UnavailableError: {{lost}}

    Example:
    ```python
    received = kr.alltoall(torch.arange(kr.size()))
    ```
    """
    given = _as_splits(splits)
    gather_calls.check([tensor], "alltoall", "divide")
    name = name_of(Kind.alltoall, name, is_async=False)
    received, rows = derivatives.alltoall(tensor, given, name, process_set)
    return received if splits is None else (received, rows)


@takes_horovods("splits name process_set")
@described
def alltoall_async(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to give every rank its rows of each rank's tensor.

    Args:
        tensor: As in `alltoall`. It must not change before the end.
        splits: As in `alltoall`.
        name: {{async_name}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns a tuple of the rows
        that came and of their numbers, with `splits` and without.

    Raises:
        TypeError: If collectives do not support the dtype or layout.
        ValueError: If `tensor` is a scalar, or `splits` is not a vector of
            integers.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.alltoall_async(rows, splits, name="rows")
    received, counts = kr.synchronize(handle)
    ```
    """
    given = _as_splits(splits)
    gather_calls.check([tensor], "alltoall_async", "divide")
    name = name_of(Kind.alltoall, name, is_async=True)
    return gather_calls.alltoall(tensor, given, name, process_set)


def _check_broadcast(
    tensor: Tensor, root_rank: int, function: str, process_set: ProcessSet
) -> None:
    tensors.check(tensor, function)
    objects.require_member(root_rank, process_set)


def _as_splits(splits: Tensor | Sequence[int] | None) -> list[int]:
    if splits is None:
        return []
    vector = torch.as_tensor(splits)
    if vector.dtype.is_floating_point or vector.dtype.is_complex:
        raise ValueError(
            "`splits` must be a vector of integers. Received: "
            f"{splits} of dtype {vector.dtype}"
        )
    if vector.ndim != 1 or len(vector) == 0:
        raise ValueError(
            "`splits` must be a vector with the number of rows for each rank. "
            f"Received: {splits} of shape {tuple(vector.shape)}"
        )
    return [int(rows) for rows in vector]
