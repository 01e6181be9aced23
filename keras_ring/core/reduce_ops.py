"""The operations that reduce tensors."""

from __future__ import annotations

import enum


class ReduceOp(enum.IntEnum):
    """The operation by which `allreduce` combines the ranks' values.

    All operations but `Adasum` combine values element by element. `Adasum`
    treats each tensor as a vector. It combines two tensors `a` and `b` into

        (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b

    This is their sum if they are orthogonal, and their mean if they are equal:
    the more the steps of two ranks agree, the less they are added up. (A factor
    whose denominator is zero is 1.) More than two tensors are combined in a
    binary tree: those of ranks 0 and 1, those of ranks 2 and 3, and so on; then
    the first two of the results, and so on until one is left. If their number
    is odd, the last one is passed on unchanged: for five ranks, the result is
    the Adasum of that of the first four and the fifth. Dot products are over
    whole tensors and are summed in float64. If a tensor has an infinity or a
    NaN, the result has no finite number.
    """

    # These are the numbers of the native ReduceOp.
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
# Reductions that commute with factors, so that the factors may be fused into
# the copies. For other reductions, factors are separate ops.
SCALED = (*LINEAR, ReduceOp.Adasum)
