"""Reductions of PyTorch's tensors over the ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Adasum, Average, ReduceOp
from keras_ring.errors import InvalidArgumentError
from keras_ring.torch import derivatives, reduction_calls
from keras_ring.torch.compression import Compression
from keras_ring.torch.operations import Handle, name_of
from keras_ring.torch.reduction_calls import Reduction

_ORDER = "average name compression op prescale_factor postscale_factor "
_ORDER += "process_set"
_ASYNC_ORDER = "average name op prescale_factor postscale_factor process_set"
_SCATTER_ORDER = "name compression op process_set prescale_factor "
_SCATTER_ORDER += "postscale_factor"


@takes_horovods(_ORDER)
@described
def allreduce(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces a tensor over all ranks; every rank gets the result.

    It has a derivative: the reduction of the ranks' gradients by the same
    operation, where that is `Average` or `Sum`.

    Args:
        tensor: A dense tensor of the same shape on every rank.
            {{reducible_dtypes}}
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A tensor of the same shape, dtype and device, bitwise equal on all
        ranks.

    Raises:
        TypeError: If the dtype or layout does not support this reduction.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    import keras_ring.torch as kr

    kr.init()
    mean = kr.allreduce(torch.tensor([float(kr.rank())]), name="ranks")
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check([tensor], "allreduce")
    name = name_of(Kind.allreduce, name, is_async=False)
    return derivatives.allreduce([tensor], name, reduction)[0]


@takes_horovods(_ASYNC_ORDER)
@described
def allreduce_async(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce a tensor over all ranks.

    Args:
        tensor: As in `allreduce`. It must not change before the end.
        op: {{op}}
        name: {{async_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the tensor. It has
        no derivative.

    Raises:
        TypeError: If the dtype or layout does not support this reduction.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.allreduce_async(tensor, name="statistics")
    mean = kr.synchronize(handle)
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check([tensor], "allreduce_async")
    name = name_of(Kind.allreduce, name, is_async=True)
    return reduction_calls.allreduce([tensor], name, reduction).then(_only)


@takes_horovods(_ASYNC_ORDER)
@described
def allreduce_(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces a tensor over all ranks in place.

    Args:
        tensor: As in `allreduce`. It is overwritten by the result.
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        `tensor`.

    Raises:
        TypeError: If the dtype or layout does not support this reduction.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    kr.allreduce_(statistics, kr.Sum, name="statistics")
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check([tensor], "allreduce_")
    name = name_of(Kind.allreduce, name, is_async=False)
    handle = reduction_calls.allreduce([tensor], name, reduction, in_place=True)
    return _only(handle.wait())


@takes_horovods(_ASYNC_ORDER)
@described
def allreduce_async_(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce a tensor over all ranks in place.

    Args:
        tensor: As in `allreduce`. It must not be used before the end.
        op: {{op}}
        name: {{async_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns `tensor`. A tensor
        that is not dense has its values after `synchronize`, not before.

    Raises:
        TypeError: If the dtype or layout does not support this reduction.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handles = [kr.allreduce_async_(p.grad, name=n) for n, p in parameters]
    for handle in handles:
        kr.synchronize(handle)
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check([tensor], "allreduce_async_")
    name = name_of(Kind.allreduce, name, is_async=True)
    handle = reduction_calls.allreduce([tensor], name, reduction, in_place=True)
    return handle.then(_only)


@takes_horovods(_ORDER)
@described
def grouped_allreduce(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Reduces several tensors as one operation.

    The group is atomic: it is one entry under one name, reduced when every
    rank has all of it. It has a derivative, as `allreduce` has.

    Args:
        tensors: A list of tensors of one device, which may be empty; dtypes may
            differ. Each as in `allreduce`.
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A list of tensors of the shapes and dtypes of `tensors`, bitwise equal
        on all ranks.

    Raises:
        TypeError: If a dtype or layout does not support this reduction.
        ValueError: If the tensors are on several devices.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    loss, accuracy = kr.grouped_allreduce([loss, accuracy], name="logs")
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check(tensors, "grouped_allreduce")
    if not tensors:
        return []
    name = name_of(Kind.allreduce, name, is_async=False)
    return derivatives.allreduce(tensors, name, reduction)


@takes_horovods(_ASYNC_ORDER)
@described
def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce several tensors as one operation.

    Args:
        tensors: As in `grouped_allreduce`, but not empty. They must not change
            before the end.
        op: {{op}}
        name: {{async_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the list of
        results.

    Raises:
        TypeError: If a dtype or layout does not support this reduction.
        ValueError: If the tensors are on several devices, or there is none.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.grouped_allreduce_async([loss, accuracy], name="logs")
    loss, accuracy = kr.synchronize(handle)
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check(tensors, "grouped_allreduce_async")
    _check_some(tensors, "grouped_allreduce_async")
    name = name_of(Kind.allreduce, name, is_async=True)
    return reduction_calls.allreduce(tensors, name, reduction)


@takes_horovods(_ASYNC_ORDER)
@described
def grouped_allreduce_(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Reduces several tensors as one operation in place.

    Args:
        tensors: As in `grouped_allreduce`. They are overwritten.
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A list of `tensors`.

    Raises:
        TypeError: If a dtype or layout does not support this reduction.
        ValueError: If the tensors are on several devices.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    kr.grouped_allreduce_([mean, variance], name="moments")
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check(tensors, "grouped_allreduce_")
    if not tensors:
        return []
    name = name_of(Kind.allreduce, name, is_async=False)
    handle = reduction_calls.allreduce(tensors, name, reduction, in_place=True)
    reduced: list[Tensor] = handle.wait()
    return reduced


@takes_horovods(_ASYNC_ORDER)
@described
def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce several tensors as one operation in place.

    Args:
        tensors: As in `grouped_allreduce`, but not empty. They must not be used
            before the end.
        op: {{op}}
        name: {{async_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns a list of
        `tensors`.

    Raises:
        TypeError: If a dtype or layout does not support this reduction.
        ValueError: If the tensors are on several devices, or there is none.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.grouped_allreduce_async_([mean, variance], name="moments")
    kr.synchronize(handle)
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    reduction.check(tensors, "grouped_allreduce_async_")
    _check_some(tensors, "grouped_allreduce_async_")
    name = name_of(Kind.allreduce, name, is_async=True)
    return reduction_calls.allreduce(tensors, name, reduction, in_place=True)


@takes_horovods(_SCATTER_ORDER)
@described
def reducescatter(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces a tensor over all ranks; every rank gets its part of the rows.

    The rows are divided in the order of the ranks. If their number cannot be
    divided evenly, the first ranks get one row more. It has a derivative, for
    `Average` and `Sum`: the ranks' gradients, one after the other, times the
    number of ranks for `Sum`.

    Args:
        tensor: A dense tensor of shape `[n, ...]`, the same on every rank.
            {{reducible_dtypes}}
        op: {{op}} Not `Adasum`.
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A tensor: this rank's rows of what `allreduce` returns.

    Raises:
        TypeError: If the dtype or layout does not support this reduction.
        ValueError: If `tensor` is a scalar.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    my_rows = kr.reducescatter(table, kr.Sum, name="table")
    ```
    """
    reduction = _scatter(
        [tensor],
        "reducescatter",
        (op, prescale_factor, postscale_factor, compression, process_set),
    )
    name = name_of(Kind.reducescatter, name, is_async=False)
    return derivatives.reducescatter([tensor], name, reduction)[0]


@takes_horovods("name op process_set prescale_factor postscale_factor")
@described
def reducescatter_async(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce a tensor, of which every rank gets its rows.

    Args:
        tensor: As in `reducescatter`. It must not change before the end.
        op: {{op}} Not `Adasum`.
        name: {{async_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the rows.

    Raises:
        TypeError: If the dtype or layout does not support this reduction.
        ValueError: If `tensor` is a scalar.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.reducescatter_async(table, kr.Sum, name="table")
    my_rows = kr.synchronize(handle)
    ```
    """
    reduction = _scatter(
        [tensor],
        "reducescatter_async",
        (op, prescale_factor, postscale_factor, compression, process_set),
    )
    name = name_of(Kind.reducescatter, name, is_async=True)
    return reduction_calls.reducescatter([tensor], name, reduction).then(_only)


@takes_horovods(_SCATTER_ORDER)
@described
def grouped_reducescatter(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Reduces and scatters several tensors as one operation.

    Args:
        tensors: A list of tensors of one device, which may be empty; dtypes may
            differ. Each as in `reducescatter`.
        op: {{op}} Not `Adasum`.
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A list of tensors: this rank's rows of each.

    Raises:
        TypeError: If a dtype or layout does not support this reduction.
        ValueError: If one of the tensors is a scalar, or they are on several
            devices.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    parts = kr.grouped_reducescatter(gradients, name="gradients")
    ```
    """
    reduction = _scatter(
        tensors,
        "grouped_reducescatter",
        (op, prescale_factor, postscale_factor, compression, process_set),
    )
    if not tensors:
        return []
    name = name_of(Kind.reducescatter, name, is_async=False)
    return derivatives.reducescatter(tensors, name, reduction)


@takes_horovods("name op process_set prescale_factor postscale_factor")
@described
def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce and scatter several tensors as one operation.

    Args:
        tensors: As in `grouped_reducescatter`, but not empty. They must not
            change before the end.
        op: {{op}} Not `Adasum`.
        name: {{async_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A handle for `poll` and `synchronize`, which returns the list of
        results.

    Raises:
        TypeError: If a dtype or layout does not support this reduction.
        ValueError: If one of the tensors is a scalar, they are on several
            devices, or there is none.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.grouped_reducescatter_async(gradients, name="gradients")
    parts = kr.synchronize(handle)
    ```
    """
    reduction = _scatter(
        tensors,
        "grouped_reducescatter_async",
        (op, prescale_factor, postscale_factor, compression, process_set),
    )
    _check_some(tensors, "grouped_reducescatter_async")
    name = name_of(Kind.reducescatter, name, is_async=True)
    return reduction_calls.reducescatter(tensors, name, reduction)


def _scatter(
    values: Sequence[Tensor], function: str, settings: tuple[Any, ...]
) -> Reduction:
    reduction = Reduction(*settings)
    if reduction.op is Adasum:
        raise InvalidArgumentError(
            f"`{function}` has no Adasum: what is in a part depends on all of "
            "the tensor. Take this rank's rows of an `allreduce`."
        )
    reduction.check(values, function)
    for tensor in values:
        if tensor.ndim == 0:
            raise ValueError(
                f"`{function}` needs at least one dimension to divide. "
                f"Received a scalar: {tensor}. Reshape it to [1]."
            )
    return reduction


def _check_some(values: Sequence[Tensor], function: str) -> None:
    if not values:
        raise ValueError(f"`{function}` takes a list that is not empty.")


def _only(results: list[Tensor]) -> Tensor:
    (result,) = results
    return result
