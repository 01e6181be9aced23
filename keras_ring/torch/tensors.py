"""Tensors of PyTorch as the native runtime needs them.

The runtime is given addresses. So a tensor must be strided and dense, and its
elements must lie in memory in the order that its shape tells, which all ranks
share.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from keras_ring.core import native

# The numbers of the native `KrDeviceKind`.
HOST = 0
CUDA = 1


@functools.cache
def number_of(dtype: torch.dtype) -> int:
    """Returns the native number of a dtype.

    Raises:
        TypeError: If collectives do not support it.
    """
    name = name_of(dtype)
    names = [name for name, _ in native.core().dtypes()]
    if name not in names:
        raise TypeError(
            f"There is no collective of {name} tensors. Expected: "
            f"{', '.join(names)}"
        )
    return names.index(name)


@functools.cache
def is_reducible(dtype: torch.dtype) -> bool:
    """Returns whether tensors of a dtype can be reduced."""
    return (name_of(dtype), True) in native.core().dtypes()


def name_of(dtype: torch.dtype) -> str:
    """Returns the name of a dtype, as NumPy has it."""
    return str(dtype).removeprefix("torch.")


def kind_of(device: torch.device) -> int:
    """Returns the native number of a kind of device.

    Raises:
        TypeError: If collectives cannot reach its memory.
    """
    if device.type == "cpu":
        return HOST
    if device.type == "cuda":
        return CUDA
    raise TypeError(
        f"There is no collective of tensors on {device}. Expected: a tensor "
        "on cpu or cuda, such as `tensor.cpu()`."
    )


def device_arguments(tensor: Tensor) -> dict[str, int]:
    """Returns the arguments of a submission that tell a tensor's device."""
    if tensor.is_cpu:
        return {}
    device = tensor.device
    stream = torch.cuda.current_stream(device)
    return {"device_ordinal": device.index, "stream": stream.cuda_stream}


def check(tensor: Any, function: str) -> None:
    """Raises an error if collectives cannot take a tensor.

    Args:
        tensor: The argument of a collective.
        function: String, the name of the collective.

    Raises:
        TypeError: If it is no dense tensor of a supported dtype and device.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"`{function}` takes a `torch.Tensor`. Received: {tensor!r} of "
            f"type {type(tensor).__name__}"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"`{function}` takes dense tensors. Received one of layout "
            f"{tensor.layout} and shape {tuple(tensor.shape)}. Convert it by "
            "`tensor.to_dense()`, or reduce it by `sparse_allreduce_async`."
        )
    number_of(tensor.dtype)
    kind_of(tensor.device)


def in_order(tensor: Tensor) -> Tensor | None:
    """Returns a tensor with its dimensions in the order of its memory.

    A collective may take a result of this in place of the tensor, since ranks
    compare shapes: a rank whose memory has another order has another shape.

    Args:
        tensor: A dense tensor.

    Returns:
        The tensor itself if it is contiguous, or a contiguous view with other
        dimensions, such as `[n, h, w, c]` of a tensor in `channels_last`. Or
        `None` if there is no such view, or its shape would be the same.
    """
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    order = sorted(range(tensor.ndim), key=lambda i: -strides[i])
    view = tensor.permute(order)
    if view.is_contiguous() and view.shape != tensor.shape:
        return view
    return None
