"""Reductions of NDArrays over the ranks of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.names import eager_name
from keras_ring.core.operations import Kind, reducible
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import SCALED, Adasum, Average, ReduceOp
from keras_ring.core.wire_formats import Compression, WireFormat
from keras_ring.mxnet import calls, tensors
from keras_ring.mxnet.calls import Handle
from keras_ring.mxnet.tensors import NDArray

_ORDER = "average name priority prescale_factor postscale_factor process_set op"


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How NDArrays are reduced, checked when it is made.

    Attributes:
        op: A `ReduceOp`.
        prescale_factor: Float.
        postscale_factor: Float.
        compression: One of `kr.Compression`.
        process_set: A `ProcessSet`.

    Raises:
        TypeError: If `op` is not a `ReduceOp`, or `compression` is no format.
    """

    op: ReduceOp = Average
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    compression: WireFormat = Compression.none
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        if not isinstance(self.op, ReduceOp):
            raise TypeError(
                "`op` must be one of kr.Average, Sum, Min, Max, Product, "
                f"Adasum. Received: {self.op!r}"
            )
        if getattr(self.compression, "native", None) is None:
            raise TypeError(
                "`compression` must be one of `kr.Compression.none`, `fp16` "
                f"and `bf16`. Received: {self.compression!r}"
            )

    def start(
        self,
        values: Sequence[NDArray],
        name: str,
        function: str,
        kind: Kind = Kind.allreduce,
        *,
        in_place: bool = False,
    ) -> Handle:
        """Submits a reduction of a group of NDArrays.

        Args:
            values: List of NDArrays, not empty.
            name: String, the name of the group.
            function: String, the name of the public function, for errors.
            kind: `Kind.allreduce` or `Kind.reducescatter`.
            in_place: Boolean, whether the results are written to `values`.

        Returns:
            A `Handle`.
        """
        for value in values:
            self._check(value, function)
        is_fused = self.op in SCALED and all(map(_is_floating, values))
        sent = list(values)
        if not is_fused:
            sent = [_times(value, self.prescale_factor) for value in sent]
        outputs = None
        if kind is Kind.allreduce:
            outputs = (
                sent if in_place else [tensors.empty_like(v) for v in sent]
            )
        handle = calls.start(
            kind,
            name,
            sent,
            outputs,
            self.process_set,
            reduce_op=int(self.op),
            compression=self.compression.native,
            prescale=self.prescale_factor if is_fused else 1.0,
            postscale=self.postscale_factor if is_fused else 1.0,
        )
        if is_fused:
            return handle

        def finish() -> list[NDArray]:
            results = [
                _times(each, self.postscale_factor) for each in handle.wait()
            ]
            if not in_place:
                return results
            for value, result in zip(values, results, strict=True):
                if result is not value:
                    value[:] = result
            return list(values)

        return Handle(_Ended(), finish)

    def _check(self, value: NDArray, function: str) -> None:
        tensors.check(value, function)
        dtype = tensors.dtype_of(value)
        if dtype.name not in reducible():
            raise TypeError(
                f"`{function}` has no {self.op.name} of {dtype.name} NDArrays."
            )
        if self.op is Adasum and not _is_floating(value):
            raise TypeError(
                f"`{function}` has an Adasum of floating-point NDArrays only. "
                f"Received one of {dtype.name}."
            )


class _Ended:
    """Stands for an operation that another handle waits for."""

    def wait(self) -> None:
        """Returns at once."""


def _is_floating(value: NDArray) -> bool:
    return bool(np.issubdtype(tensors.dtype_of(value), np.floating))


def _times(value: NDArray, factor: float) -> NDArray:
    """Returns an NDArray times a number, in float64 for integers."""
    if factor == 1.0:
        return value
    if _is_floating(value):
        return value * factor
    scaled = value.asnumpy().astype(np.float64) * factor
    dtype = tensors.dtype_of(value)
    return mx.nd.array(scaled.astype(dtype), dtype=dtype)


@takes_horovods(_ORDER)
@described
def allreduce(
    tensor: NDArray,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Reduces an NDArray over all ranks; every rank gets the result.

    Args:
        tensor: A dense NDArray of the same shape on every rank.
            {{reducible_dtypes}}
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: One of `kr.Compression.none`, `kr.Compression.fp16` and
            `kr.Compression.bf16`. Defaults to `kr.Compression.none`.
        process_set: {{process_set}}

    Returns:
        An NDArray of the same shape and dtype, bitwise equal on all ranks.

    Raises:
        TypeError: If the dtype or storage does not support this reduction.
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    mean = kr.allreduce(mx.nd.array([kr.rank()]), name="ranks")
    ```
    """
    (result,) = grouped_allreduce(
        [tensor],
        op,
        name=eager_name("allreduce", name),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        process_set=process_set,
    )
    return result


@takes_horovods(_ORDER)
@described
def allreduce_(
    tensor: NDArray,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Reduces an NDArray over all ranks in place.

    Args:
        tensor: As in `allreduce`; it gets the result.
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        `tensor`.

    Raises:
        TypeError: As in `allreduce`, as are further errors.

    Example:
    ```python
    kr.allreduce_(statistics, kr.Sum, name="statistics")
    ```
    """
    (result,) = grouped_allreduce_(
        [tensor],
        op,
        name=eager_name("allreduce", name),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        process_set=process_set,
    )
    return result


@takes_horovods(_ORDER)
@described
def grouped_allreduce(
    tensors: Sequence[NDArray],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> list[NDArray]:
    """Reduces several NDArrays as one operation.

    Args:
        tensors: List of NDArrays, as in `allreduce`.
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        A list of NDArrays.

    Raises:
        TypeError: As in `allreduce`, as are further errors.

    Example:
    ```python
    loss, count = kr.grouped_allreduce([loss, count], kr.Sum, name="epoch")
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    return _run(reduction, tensors, name, "grouped_allreduce")


@takes_horovods(_ORDER)
@described
def grouped_allreduce_(
    tensors: Sequence[NDArray],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> list[NDArray]:
    """Reduces several NDArrays as one operation, in place.

    Args:
        tensors: List of NDArrays, as in `allreduce`; they get the results.
        op: {{op}}
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        A list of the NDArrays.

    Raises:
        TypeError: As in `allreduce`, as are further errors.

    Example:
    ```python
    kr.grouped_allreduce_(gradients, name="gradients")
    ```
    """
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    return _run(reduction, tensors, name, "grouped_allreduce_", in_place=True)


@takes_horovods("op name priority process_set prescale_factor postscale_factor")
@described
def reducescatter(
    tensor: NDArray,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Reduces an NDArray over all ranks; each rank gets a part of the rows.

    Args:
        tensor: A dense NDArray of shape `[n, ...]`, the same on every rank.
            {{reducible_dtypes}}
        op: As in `allreduce`, but not `Adasum`.
        name: {{array_name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        An NDArray with the rows of this rank. If `n` is not a multiple of the
        number of ranks, the first ranks have one row more.

    Raises:
        TypeError: As in `allreduce`, as are further errors.
        ValueError: If `op` is `Adasum`.

    Example:
    ```python
    rows = kr.reducescatter(mx.nd.ones((kr.size(), 3)), kr.Sum)
    ```
    """
    if op is Adasum:
        raise ValueError(
            "`reducescatter` has no Adasum: what is in a part depends on all "
            "of the NDArray. Take this rank's rows of an `allreduce`."
        )
    reduction = Reduction(
        op, prescale_factor, postscale_factor, compression, process_set
    )
    (result,) = _run(
        reduction,
        [tensor],
        eager_name("reducescatter", name),
        "reducescatter",
        kind=Kind.reducescatter,
    )
    return result


def _run(
    reduction: Reduction,
    values: Sequence[NDArray],
    name: str | None,
    function: str,
    **settings: Any,
) -> list[NDArray]:
    if not values:
        return []
    handle = reduction.start(
        values, eager_name("allreduce", name), function, **settings
    )
    return handle.wait()
