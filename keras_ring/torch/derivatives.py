"""Collectives of PyTorch's tensors with their derivatives.

The gradient of a collective is a collective, too, so every rank must compute
it. Those of `allreduce` and `reducescatter` are reduced by the operation of the
collective. Those of `allgather` and `broadcast` are averaged: they are the
derivatives of the mean of the ranks' losses, which is what an optimizer that
averages gradients minimizes. Programs that were written for Horovod rely on
this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keras_ring.core import arrays, topology
from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduce_ops import Average, Sum
from keras_ring.torch import gather_calls, reduction_calls
from keras_ring.torch.reduction_calls import Reduction

_DIFFERENTIABLE = (Average, Sum)


def allreduce(
    values: Sequence[Tensor], name: str, reduction: Reduction
) -> list[Tensor]:
    """Returns the results of an allreduce of a group; it has a derivative."""
    if _records(values):
        return list(_Allreduce.apply(name, reduction, *values))
    results: list[Tensor]
    results = reduction_calls.allreduce(values, name, reduction).wait()
    return results


def reducescatter(
    values: Sequence[Tensor], name: str, reduction: Reduction
) -> list[Tensor]:
    """Returns the rows of a reducescatter of a group; it has a derivative."""
    if _records(values):
        return list(_Reducescatter.apply(name, reduction, *values))
    results: list[Tensor]
    results = reduction_calls.reducescatter(values, name, reduction).wait()
    return results


def allgather(
    values: Sequence[Tensor], name: str, process_set: ProcessSet
) -> list[Tensor]:
    """Returns the results of an allgather of a group; it has a derivative."""
    if _records(values):
        return list(_Allgather.apply(name, process_set, *values))
    results: list[Tensor]
    results = gather_calls.allgather(values, name, process_set).wait()
    return results


def broadcast(
    value: Tensor, root_rank: int, name: str, process_set: ProcessSet
) -> Tensor:
    """Returns the result of a broadcast; it has a derivative."""
    if _records([value]):
        result: Tensor = _Broadcast.apply(name, root_rank, process_set, value)
        return result
    handle = gather_calls.broadcast([value], root_rank, name, process_set)
    (received,) = handle.wait()
    return received


def alltoall(
    value: Tensor, splits: list[int], name: str, process_set: ProcessSet
) -> tuple[Tensor, Tensor]:
    """Returns the results of an alltoall; the first has a derivative."""
    if _records([value]):
        received, rows = _Alltoall.apply(name, splits, process_set, value)
        return received, rows
    received, rows = gather_calls.alltoall(
        value, splits, name, process_set
    ).wait()
    return received, rows


def _records(values: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(v.requires_grad for v in values)


def _require_derivative(reduction: Reduction) -> None:
    if reduction.op not in _DIFFERENTIABLE:
        raise RuntimeError(
            f"A reduction by {reduction.op.name} has no derivative; those by "
            "Average and Sum have one. Call it on `tensor.detach()`."
        )


def _gradient_name(name: str) -> str:
    return f"{name}/gradient"


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str, reduction: Reduction, *values: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.name, ctx.reduction = name, reduction
        handle = reduction_calls.allreduce(values, name, reduction)
        return tuple(handle.wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        _require_derivative(ctx.reduction)
        reduced = allreduce(gradients, _gradient_name(ctx.name), ctx.reduction)
        return None, None, *reduced


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str, reduction: Reduction, *values: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.name, ctx.reduction = name, reduction
        handle = reduction_calls.reducescatter(values, name, reduction)
        return tuple(handle.wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        reduction = ctx.reduction
        _require_derivative(reduction)
        factor = reduction.prescale_factor * reduction.postscale_factor
        if reduction.op is Sum:
            factor *= reduction.process_set.size()
        gathered = allgather(
            [reduction_calls.scaled(each, factor) for each in gradients],
            _gradient_name(ctx.name),
            reduction.process_set,
        )
        return None, None, *gathered


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str, process_set: ProcessSet, *values: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.name, ctx.process_set = name, process_set
        ctx.rows = [value.shape[0] for value in values]
        return tuple(gather_calls.allgather(values, name, process_set).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        name = _gradient_name(ctx.name)
        mean = Reduction(process_set=ctx.process_set)
        reduced = allreduce(gradients, name, mean)
        # Where this rank's rows of each tensor begin.
        rows = arrays.gather_rows(
            np.array(ctx.rows), f"{name}/rows", ctx.process_set
        )
        begins = rows[: ctx.process_set.rank()].sum(axis=0)
        parts = [
            each.narrow(0, int(begin), count)
            for each, begin, count in zip(
                reduced, begins, ctx.rows, strict=True
            )
        ]
        return None, None, *parts


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        root_rank: int,
        process_set: ProcessSet,
        value: Tensor,
    ) -> Tensor:
        ctx.name, ctx.root_rank, ctx.process_set = name, root_rank, process_set
        handle = gather_calls.broadcast([value], root_rank, name, process_set)
        (received,) = handle.wait()
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        mean = Reduction(process_set=ctx.process_set)
        (reduced,) = allreduce([gradient], _gradient_name(ctx.name), mean)
        if topology.rank() != ctx.root_rank:
            reduced = torch.zeros_like(reduced)
        return None, None, None, reduced


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        splits: list[int],
        process_set: ProcessSet,
        value: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.name, ctx.process_set = name, process_set
        received, rows = gather_calls.alltoall(
            value, splits, name, process_set
        ).wait()
        ctx.rows = rows.tolist()
        ctx.mark_non_differentiable(rows)
        return received, rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
        # The rows go back to where they came from.
        returned, _ = alltoall(
            gradient, ctx.rows, _gradient_name(ctx.name), ctx.process_set
        )
        return None, None, None, returned
