"""Checks reductions of PyTorch's tensors, and submits them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import SCALED, Adasum, Average, ReduceOp
from keras_ring.torch import operations, tensors
from keras_ring.torch.compression import Compression, native_of
from keras_ring.torch.operations import Handle


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How tensors are reduced, checked when it is made.

    Attributes:
        op: A `ReduceOp`.
        prescale_factor: Float.
        postscale_factor: Float.
        compression: One of `kr.Compression`, or an object with `compress` and
            `decompress`.
        process_set: A `ProcessSet`.

    Raises:
        TypeError: If `op` is not a `ReduceOp`, or `compression` is no format.
    """

    op: ReduceOp = Average
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    compression: Any = Compression.none
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        if not isinstance(self.op, ReduceOp):
            raise TypeError(
                "`op` must be one of keras_ring.Average, Sum, Min, Max, "
                f"Product, Adasum. Received: {self.op!r}"
            )
        native_of(self.compression)

    def fuses_factors(self, dtypes: Sequence[torch.dtype]) -> bool:
        """Returns whether the copies of the runtime can apply the factors."""
        return self.op in SCALED and all(d.is_floating_point for d in dtypes)

    def check(self, values: Sequence[Tensor], function: str) -> None:
        """Raises an error if tensors cannot be reduced so, or not together."""
        for tensor in values:
            tensors.check(tensor, function)
            dtype = tensor.dtype
            if self.op is Adasum and not dtype.is_floating_point:
                raise TypeError(
                    f"`{function}` has an Adasum of floating-point tensors "
                    f"only. Received a tensor of {dtype}."
                )
            if not tensors.is_reducible(dtype):
                raise TypeError(
                    f"`{function}` has no {self.op.name} of {dtype} tensors."
                )
        check_devices(values, function)

    def prepared(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
        """Returns what is sent of tensors, each with the type to restore."""
        fused = self.fuses_factors([value.dtype for value in values])
        compression = self.compression
        prepared = []
        for value in values:
            sent = value.detach()
            if not fused:
                sent = scaled(sent, self.prescale_factor)
            dtype = None
            if native_of(compression) is None:
                sent, dtype = compression.compress(sent)
            prepared.append((sent, dtype))
        return prepared

    def finished(
        self, results: Sequence[Tensor], prepared: Any, values: Sequence[Tensor]
    ) -> list[Tensor]:
        """Returns the results for what was received for tensors."""
        fused = self.fuses_factors([value.dtype for value in values])
        finished = []
        for result, (_, dtype) in zip(results, prepared, strict=True):
            if native_of(self.compression) is None:
                result = self.compression.decompress(result, dtype)
            if not fused:
                result = scaled(result, self.postscale_factor)
            finished.append(result)
        return finished

    def settings(self, dtypes: Sequence[torch.dtype]) -> dict[str, Any]:
        """Returns the settings of the native operation for tensors."""
        is_fused = self.fuses_factors(dtypes)
        return {
            "reduce_op": int(self.op),
            "compression": native_of(self.compression) or 0,
            "prescale": self.prescale_factor if is_fused else 1.0,
            "postscale": self.postscale_factor if is_fused else 1.0,
        }


def check_devices(values: Sequence[Tensor], function: str) -> None:
    """Raises an error if tensors of a group are on several devices."""
    devices = {str(value.device) for value in values}
    if len(devices) > 1:
        raise ValueError(
            f"`{function}` takes tensors of one device. Received tensors on "
            f"{', '.join(sorted(devices))}."
        )


def allreduce(
    values: Sequence[Tensor],
    name: str,
    reduction: Reduction,
    *,
    in_place: bool = False,
) -> Handle:
    """Submits an allreduce of a group of tensors that were checked.

    Args:
        values: List of tensors on one device, not empty.
        name: String, the name of the group.
        reduction: A `Reduction`.
        in_place: Boolean, whether the results are written to `values`.

    Returns:
        A `Handle` whose result is a list of tensors.
    """
    prepared = reduction.prepared(values)
    settings = reduction.settings([value.dtype for value in values])
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    results: list[Tensor] = []
    for sent, _ in prepared:
        source = tensors.in_order(sent)
        # The memory of a value of the program is written only where it is what
        # is sent.
        result = sent if in_place else torch.empty_like(sent)
        target = tensors.in_order(result)
        if source is None or target is None or source.shape != target.shape:
            source = sent.contiguous()
            result = target = torch.empty_like(source)
        inputs.append(source)
        outputs.append(target)
        results.append(result)
    operation = operations.start(
        Kind.allreduce,
        name,
        inputs,
        outputs,
        reduction.process_set,
        **settings,
    )

    def finish() -> list[Tensor]:
        finished = reduction.finished(results, prepared, values)
        if not in_place:
            return finished
        with torch.no_grad():
            for value, result in zip(values, finished, strict=True):
                if result.data_ptr() != value.data_ptr():
                    value.copy_(result)
        return list(values)

    return Handle(operation, finish)


def reducescatter(
    values: Sequence[Tensor], name: str, reduction: Reduction
) -> Handle:
    """Submits a reducescatter of a group of tensors that were checked.

    Args:
        values: List of tensors on one device, not empty.
        name: String, the name of the group.
        reduction: A `Reduction`.

    Returns:
        A `Handle` whose result is a list of tensors.
    """
    device = values[0].device
    prepared = reduction.prepared(values)
    settings = reduction.settings([value.dtype for value in values])
    inputs = [sent.cpu().contiguous() for sent, _ in prepared]
    operation = operations.start(
        Kind.reducescatter,
        name,
        inputs,
        None,
        reduction.process_set,
        **settings,
    )

    def finish() -> list[Tensor]:
        received = operations.rows_of(operation, inputs)
        results = [result.to(device) for result in received]
        return reduction.finished(results, prepared, values)

    return Handle(operation, finish)


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """Returns a tensor times a number, computed in float64 for integers."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating_point:
        return tensor * factor
    return (tensor.to(torch.float64) * factor).to(tensor.dtype)
