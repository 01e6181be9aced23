"""How tensors are combined, and how a TensorFlow op says it."""

from __future__ import annotations

import enum
import struct

from keras_ring._ops.compression import Compression, Compressor
from keras_ring._typing import Operation


class ReduceOp(enum.IntEnum):
    """How `allreduce` combines the ranks' values.

    All but `Adasum` do so element by element. `Adasum` takes each tensor as a
    vector; of two it makes

        (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b

    which is their sum where they are at right angles and their mean where they
    are equal: steps that ranks propose are added up only as far as they say
    different things. (A factor whose denominator is zero is 1.) Of more than
    two, ranks 0 and 1 make one, 2 and 3, and so on; then the first two of
    these, and so on until one is left. Where their number is odd, the last is
    carried up as it is: of five ranks it is the Adasum of that of the first
    four and the fifth. Dot products are those of whole tensors and summed in
    float64; one that has an infinity or a NaN comes out without a finite
    number.
    """

    # The numbers of the native ReduceOp.
    Average = 0
    Sum = 1
    Min = 2
    Max = 3
    Product = 4
    Adasum = 5


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product
Adasum = ReduceOp.Adasum

LINEAR = (ReduceOp.Average, ReduceOp.Sum)
# Reductions that commute with a factor, so that the factors may be fused into
# the copies; for the others they are ops of their own.
SCALED = (*LINEAR, ReduceOp.Adasum)


class Kind(enum.IntEnum):
    """What there is under XLA: the numbers of the native RequestKind."""

    allreduce = 0
    broadcast = 2
    reducescatter = 4


# By the numbers of the native Compression.
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
