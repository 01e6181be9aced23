"""Submits collectives that move PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet
from keras_ring.torch import operations, tensors
from keras_ring.torch.operations import Handle


def allgather(
    values: Sequence[Tensor], name: str, process_set: ProcessSet
) -> Handle:
    """Submits an allgather of a group of tensors that were checked.

    Args:
        values: List of tensors on one device, not empty.
        name: String, the name of the group.
        process_set: A `ProcessSet`.

    Returns:
        A `Handle` whose result is a list of tensors.
    """
    device = values[0].device
    inputs = _on_host(values)
    operation = operations.start(
        Kind.allgather, name, inputs, None, process_set
    )

    def finish() -> list[Tensor]:
        rows = operations.rows_of(operation, inputs)
        return [each.to(device) for each in rows]

    return Handle(operation, finish)


def broadcast(
    values: Sequence[Tensor],
    root_rank: int,
    name: str,
    process_set: ProcessSet,
    *,
    in_place: bool = False,
) -> Handle:
    """Submits a broadcast of a group of tensors that were checked.

    Args:
        values: List of tensors on one device, not empty.
        root_rank: Integer, a rank of the job.
        name: String, the name of the group.
        process_set: A `ProcessSet`.
        in_place: Boolean, whether the results are written to `values`.

    Returns:
        A `Handle` whose result is a list of tensors.
    """
    # In the order of their shapes: a rank may have another order in memory.
    inputs = [value.detach().contiguous() for value in values]
    outputs = inputs
    if not in_place:
        outputs = [torch.empty_like(each) for each in inputs]
    operation = operations.start(
        Kind.broadcast, name, inputs, outputs, process_set, root=root_rank
    )

    def finish() -> list[Tensor]:
        if not in_place:
            return outputs
        with torch.no_grad():
            for value, output in zip(values, outputs, strict=True):
                if output.data_ptr() != value.data_ptr():
                    value.copy_(output)
        return list(values)

    return Handle(operation, finish)


def alltoall(
    value: Tensor, splits: list[int], name: str, process_set: ProcessSet
) -> Handle:
    """Submits an alltoall of a tensor that was checked.

    Args:
        value: A tensor of one dimension or more.
        splits: List of integers, the rows for each rank; empty for equal parts.
        name: String, the name of the collective.
        process_set: A `ProcessSet`.

    Returns:
        A `Handle` whose result is a tuple of the rows that came, and of how
        many came from each rank, a tensor of int32 in host memory.
    """
    inputs = _on_host([value])
    operation = operations.start(
        Kind.alltoall, name, inputs, None, process_set, splits=splits
    )

    def finish() -> tuple[Tensor, Tensor]:
        received, rows = operations.rows_of(operation, inputs)
        return received.to(value.device), rows.to(torch.int32)

    return Handle(operation, finish)


def check(values: Sequence[Tensor], function: str, purpose: str) -> None:
    """Raises an error if tensors cannot be gathered or divided by rows.

    Raises:
        TypeError: As in `tensors.check`.
        ValueError: If one of them is a scalar.
    """
    for value in values:
        tensors.check(value, function)
        if value.ndim == 0:
            raise ValueError(
                f"`{function}` needs at least one dimension to {purpose}. "
                f"Received a scalar: {value}. Reshape it to [1]."
            )


def _on_host(values: Sequence[Tensor]) -> list[Tensor]:
    return [value.detach().cpu().contiguous() for value in values]
