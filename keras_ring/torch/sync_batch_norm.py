"""Batch normalization by the moments of the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Sum
from keras_ring.torch import reduction_calls
from keras_ring.torch.operations import name_of
from keras_ring.torch.reduction_calls import Reduction


class SyncBatchNorm(_BatchNorm):
    """Normalizes by the mean and variance of the batches of all ranks.

    While a model is trained, each rank has a part of the batch; this layer
    normalizes all parts as one process would the whole batch. It needs one
    exchange of `2 * num_features + 1` numbers forward, and one of
    `2 * num_features` backward. In evaluation it is `torch.nn.BatchNorm1d`.

    Args:
        num_features: Integer, the size of the second dimension of the input.
        eps: Float, added to the variance. Defaults to `1e-5`.
        momentum: Float, the weight of a batch in the running statistics, or
            `None` for their plain average. Defaults to `0.1`.
        affine: Boolean, whether there are weights to scale and shift.
            Defaults to `True`.
        track_running_stats: Boolean, whether there are running statistics.
            Defaults to `True`.
        process_set: A `kr.ProcessSet` of which this rank is a member. Defaults
            to all ranks.

    Raises:
        ValueError: If an input has less than two dimensions.

    Example:
    ```python
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), kr.SyncBatchNorm(8), torch.nn.ReLU()
    )
    ```
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats
        )
        self.process_set = process_set

    @classmethod
    def convert_sync_batchnorm(
        cls,
        module: torch.nn.Module,
        process_set: ProcessSet = global_process_set,
    ) -> torch.nn.Module:
        """Replaces the batch normalization of a model.

        Args:
            module: A model, or a layer of `torch.nn.BatchNorm1d`, `2d`, `3d`.
            process_set: As for the class.

        Returns:
            The model with its parameters and statistics as they were; if
            `module` is itself such a layer, the layer that replaces it.

        Example:
        ```python
        model = kr.SyncBatchNorm.convert_sync_batchnorm(resnet)
        ```
        """
        for name, child in list(module.named_children()):
            converted = cls.convert_sync_batchnorm(child, process_set)
            if converted is not child:
                setattr(module, name, converted)
        if not isinstance(module, _BatchNorm) or isinstance(module, cls):
            return module
        layer = cls(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_set,
        )
        # The very tensors: an optimizer may have them already.
        layer.weight, layer.bias = module.weight, module.bias
        layer.running_mean = module.running_mean
        layer.running_var = module.running_var
        layer.num_batches_tracked = module.num_batches_tracked
        layer.training = module.training
        return layer

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                "`SyncBatchNorm` takes inputs of two dimensions or more. "
                f"Received one of shape {tuple(input.shape)}"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Normalizes a batch; see `torch.nn.SyncBatchNorm.forward`."""
        self._check_input_dim(input)
        if not self.training or self.process_set.size() == 1:
            return super().forward(input)
        # Half precision is too coarse for sums.
        values = input.float() if input.dtype.itemsize < 4 else input
        features = self.num_features
        shape = [1, features, *[1] * (input.dim() - 2)]
        total = _SumOfRanks.apply(_moments(values, shape), self.process_set)
        rows = total[-1].detach()
        mean = total[:features] / rows
        variance = total[features:-1] / rows - mean.square()
        self._track(mean.detach(), variance.detach(), rows)
        mean, variance = mean.to(values.dtype), variance.to(values.dtype)
        scale = torch.rsqrt(variance.clamp(min=0.0) + self.eps)
        normalized = (values - mean.view(shape)) * scale.view(shape)
        if self.affine:
            normalized = normalized * self.weight.view(shape)
            normalized = normalized + self.bias.view(shape)
        return normalized.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor, rows: Tensor) -> None:
        """Updates the running statistics, as `torch.nn.BatchNorm1d` does."""
        if not self.track_running_stats:
            return
        unbiased = variance * (rows / (rows - 1.0).clamp(min=1.0))
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            weight = self.momentum
            if weight is None:
                weight = 1.0 / float(self.num_batches_tracked)
            for running, batch in (
                (self.running_mean, mean),
                (self.running_var, unbiased),
            ):
                running.lerp_(batch.to(running.dtype), weight)


def _moments(values: Tensor, shape: list[int]) -> Tensor:
    """Returns a batch's sums, sums of squares and number of rows, in float64.

    The squares are those of the differences from this rank's mean, plus what
    the mean adds to each, in float64. So a large mean costs no precision.

    Args:
        values: A batch.
        shape: List of integers, that of a vector of features beside it.
    """
    dims = [i for i in range(values.dim()) if i != 1]
    count = values.numel() // shape[1]
    mean = values.sum(dims) / max(count, 1)
    squares = (values - mean.view(shape)).square().sum(dims)
    mean, squares = mean.double(), squares.double()
    return torch.cat(
        [
            mean * count,
            squares + mean.square() * count,
            mean.new_tensor([float(count)]),
        ]
    )


class _SumOfRanks(torch.autograd.Function):
    """The sum of a tensor over the ranks, whose gradients are summed, too.

    Each rank's loss depends on the inputs of all ranks, so this is the
    derivative of the sum of the ranks' losses. An optimizer that averages the
    gradients of the ranks turns it into that of their mean, as for all other
    layers.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, process_set: ProcessSet) -> Tensor:
        ctx.process_set = process_set
        return _summed(value, process_set, "sync_batch_norm")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        name = "sync_batch_norm/gradient"
        return _summed(gradient, ctx.process_set, name), None


def _summed(value: Tensor, process_set: ProcessSet, name: str) -> Tensor:
    # Layers follow each other, so one name serves all.
    handle = reduction_calls.allreduce(
        [value.contiguous()],
        name_of(Kind.allreduce, name, is_async=False),
        Reduction(Sum, process_set=process_set),
    )
    result: Tensor = handle.wait()[0]
    return result
