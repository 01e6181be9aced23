"""The attributes of TensorFlow operations that specify a reduction."""

from __future__ import annotations

import enum
import struct

from keras_ring._typing import Operation
from keras_ring.core.reduce_ops import ReduceOp
from keras_ring.tensorflow.compression import Compression, Compressor


class Kind(enum.IntEnum):
    """Collectives under XLA, with the numbers of the native RequestKind."""

    allreduce = 0
    broadcast = 2
    reducescatter = 4


# Indexed by the numbers of the native Compression.
_COMPRESSIONS = (Compression.none, Compression.fp16, Compression.bf16)


def reduce_op_of(op: Operation) -> ReduceOp:
    """Returns the `ReduceOp` of a TensorFlow operation."""
    return ReduceOp(op.get_attr("reduce_op"))


def factors_of(op: Operation) -> tuple[float, float]:
    """Returns the prescale and postscale factors of a TensorFlow operation."""
    prescale, postscale = (
        struct.unpack("<d", struct.pack("<q", op.get_attr(name)))[0]
        for name in ("prescale_bits", "postscale_bits")
    )
    return prescale, postscale


def compression_of(op: Operation) -> Compressor:
    """Returns the compression of a TensorFlow operation."""
    return _COMPRESSIONS[op.get_attr("compression")]
