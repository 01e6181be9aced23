"""Narrower number formats for tensors on their way between ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Compressor:
    """Casts tensors to a narrower type for the wire, and back.

    Only floating-point tensors wider than `wire_dtype` are cast; all others
    pass unchanged. Both directions are ordinary casts, so gradients flow
    through them and keep the type of the tensor that was given.

    Args:
        wire_dtype: String, the type on the wire, or `None` for no cast.
    """

    wire_dtype: str | None = None

    def compress(self, tensor: Any) -> tuple[Any, Any]:
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

    def decompress(self, tensor: Any, dtype: Any) -> Any:
        """Casts a received tensor back.

        Args:
            tensor: A tensor.
            dtype: What `compress` returned beside the tensor it made.

        Returns:
            A tensor of the type that `compress` was given.
        """
        return tensor if dtype is None else tf.cast(tensor, dtype)


class Compression:
    """The formats to choose from for the `compression` arguments.

    Attributes:
        none: Tensors travel as they are.
        fp16: Float32 and float64 travel as float16: ten bits of precision,
            nothing above 65504.
        bf16: Float32 and float64 travel as bfloat16: seven bits of precision,
            the range of float32.

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
