"""Narrower number formats for tensors on the wire."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from keras_ring._typing import DType, Tensor
from keras_ring.core.wire_formats import WireFormat


@dataclasses.dataclass(frozen=True)
class Compressor(WireFormat):
    """Rounds tensors to a narrower type for the wire.

    Only floating-point tensors wider than `wire_dtype` are rounded; all others
    pass unchanged.

    An allreduce with one of `keras_ring.Compression` rounds values while it
    copies them out of tensors and results back into them, without ops and
    narrow tensors. For other uses there are `compress` and `decompress`, which
    are ordinary casts. An allreduce also takes any other object with these two
    methods, and calls them before and after.

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

    def compress(self, tensor: Tensor) -> tuple[Tensor, DType]:
        """Casts `tensor` to the type of the wire.

        Args:
            tensor: A tensor.

        Returns:
            The tensor to send, and the type to restore, which is `None` if
            nothing was cast.
        """
        if self.wire_dtype is None:
            return tensor, None
        tensor = tf.convert_to_tensor(tensor)
        wire_dtype = tf.as_dtype(self.wire_dtype)
        if not tensor.dtype.is_floating or tensor.dtype.size <= wire_dtype.size:
            return tensor, None
        return tf.cast(tensor, wire_dtype), tensor.dtype

    def decompress(self, tensor: Tensor, dtype: DType) -> Tensor:
        """Casts a received tensor back.

        Args:
            tensor: A tensor.
            dtype: The type that `compress` returned with the tensor.

        Returns:
            A tensor of the type that `compress` was given.
        """
        return tensor if dtype is None else tf.cast(tensor, dtype)


class Compression:
    """The formats to choose from for the `compression` arguments.

    With a narrow format, a gradient of float32 moves half the bytes, and one
    of float64 a quarter. (Between several hosts, sums are sent from rank to
    rank in float32: three ranks move 5/8 of float32's bytes, and many 3/4.)

    Values lose precision twice. Each rank's values (times the prescale factor)
    are rounded; the sum is computed in float32; and the result (divided for an
    average, times the postscale factor) is rounded again. All ranks get the
    same bits. Numbers too large for the format become infinite, which a
    `LossScaleOptimizer` detects; those too small become zero.

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
