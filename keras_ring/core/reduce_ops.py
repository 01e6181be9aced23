"""How tensors are combined."""

from __future__ import annotations

import enum


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
