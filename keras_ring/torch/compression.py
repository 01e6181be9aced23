"""Narrower number formats for tensors of PyTorch on the wire."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from keras_ring.core import wire_formats


@dataclasses.dataclass(frozen=True)
class Compressor(wire_formats.WireFormat):
    """Rounds tensors to a narrower type for the wire.

    An allreduce with one of `keras_ring.torch.Compression` rounds values while
    it copies them, and makes no narrow tensors. For other uses there are
    `compress` and `decompress`, which are ordinary casts. An allreduce also
    takes any other object with these two methods, and calls them before and
    after.

    Args:
        wire_dtype: String, the type on the wire, or `None` for no cast.
    """

    @property
    def native(self) -> int | None:
        """The number of the native `KrCompression`, or `None` for none.

        A class that derives from this one may cast in its own way, so it has
        none either.
        """
        return super().native if type(self) is Compressor else None

    def compress(self, tensor: Tensor) -> tuple[Tensor, torch.dtype | None]:
        """Casts `tensor` to the type of the wire.

        Args:
            tensor: A tensor.

        Returns:
            The tensor to send, and the type to restore, which is `None` if
            nothing was cast.
        """
        if self.wire_dtype is None or not tensor.dtype.is_floating_point:
            return tensor, None
        wire_dtype: torch.dtype = getattr(torch, self.wire_dtype)
        if tensor.dtype.itemsize <= wire_dtype.itemsize:
            return tensor, None
        return tensor.to(wire_dtype), tensor.dtype

    def decompress(self, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
        """Casts a received tensor back.

        Args:
            tensor: A tensor.
            dtype: The type that `compress` returned with the tensor.

        Returns:
            A tensor of the type that `compress` was given.
        """
        return tensor if dtype is None else tensor.to(dtype)


class Compression:
    """The formats to choose from for the `compression` arguments.

    Values lose precision twice: each rank's values are rounded, the sum is
    computed in float32, and the result is rounded again. All ranks get the same
    bits. Numbers that are too large for the format become infinite, and too
    small ones become zero.

    Attributes:
        none: Tensors are sent unchanged.
        fp16: Float32 and float64 are sent as float16: ten bits of precision,
            no numbers above 65504.
        bf16: Float32 and float64 are sent as bfloat16: seven bits of
            precision, the range of float32.

    Example:
    ```python
    optimizer = kr.DistributedOptimizer(
        optimizer, compression=kr.Compression.bf16
    )
    ```
    """

    none = Compressor()
    fp16 = Compressor("float16")
    bf16 = Compressor("bfloat16")


def native_of(compression: Any) -> int | None:
    """Returns the number of the native `KrCompression` for an argument.

    Args:
        compression: A format, or an object with `compress` and `decompress`.

    Returns:
        Integer, or `None` if its methods have to be called.

    Raises:
        TypeError: If it is neither.
    """
    number = getattr(compression, "native", None)
    if number is None and not hasattr(compression, "decompress"):
        raise TypeError(
            "`compression` must be one of `kr.Compression.none`, `fp16` and "
            "`bf16`, or have the methods `compress` and `decompress`. "
            f"Received: {compression!r}"
        )
    return number
