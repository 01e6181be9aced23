"""Ways in which values that ranks assign make the value of one process.

Ranks begin with the value `b`, and rank `r`, which has the share `s_r` of the
rows of a batch, assigns `p_r`. One process would assign `w`, and it may be that

    w = p_r                          it does not depend on the rows
    w = sum_r s_r p_r                a running mean, of any weight
    w = a b + sum_r (p_r - a b)      a sum, of which `a` is left each time
    w = max_r p_r,  w = min_r p_r    a running maximum or minimum

A batch and its parts tell which it is. Often several ways are possible at
first, and later batches leave one. They also tell the share `a` that is left of
a sum, unless `b` is zero, as it often is at the first batch.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Tensor
from keras_ring.core import reduce_ops, topology
from keras_ring.keras.optimizer.whole_batch import Step
from keras_ring.tensorflow import reductions
from keras_ring.unchanged import tolerances

Array = npt.NDArray[Any]
# The tolerance in the last digits of the largest value, in addition to that of
# the change.
_LAST_DIGITS = 8
# The smallest error of the share that is left of a sum, and the error from
# which on the share counts as unknown.
_OF_SHARE, _UNKNOWN = 1e-12, 0.05


class Way(enum.Enum):
    """Ways to combine the values of ranks. The first possible one is used."""

    SAME = "does not depend on its rows"
    MEAN = "a mean over its rows"
    SUM = "a sum over its rows"
    MAX = "a maximum of its rows"
    MIN = "a minimum of its rows"


class Left(NamedTuple):
    """The share that is left of a sum each time, and its error."""

    share: float
    error: float


# The possible ways; for a sum with the share that is left of it, if known.
Possible = dict[Way, Left | None]
ANY: Possible = dict.fromkeys(Way)


class Values(NamedTuple):
    """The values of one assignment to a variable, all of the same shape.

    Args:
        before: Array, the value that the variable has before.
        part: Array, the value that this rank assigns.
        whole: Array, the value that one process assigns.
    """

    before: Array
    part: Array
    whole: Array


def possible(
    assigned: Sequence[Values], share: float, num_bytes: int, name: str
) -> list[Possible]:
    """Returns the possible ways of each assignment, the same on all ranks.

    All ranks must call this.

    Args:
        assigned: Sequence of the `Values` of each assignment.
        share: Float, the share of the rows that this rank has, which differs
            between ranks.
        num_bytes: Integer, the bytes of the smallest type of the computation.
        name: String, the prefix of the names of the exchanges.
    """
    parts = [each.part.astype(np.float64) for each in assigned]
    sums = _reduced(
        [each * factor for each in parts for factor in (1.0, share)],
        reduce_ops.Sum,
        f"{name}/sums",
    )
    ends = _reduced(
        [each * sign for each in parts for sign in (1.0, -1.0)],
        reduce_ops.Max,
        f"{name}/ends",
    )
    tried = [
        _Tried(
            values,
            sums[2 * index : 2 * index + 2],
            (-ends[2 * index + 1], ends[2 * index]),
            num_bytes,
        )
        for index, values in enumerate(assigned)
    ]
    left = _reduced(
        [np.array([each.left() for each in tried])],
        reduce_ops.Average,
        f"{name}/left",
    )[0]
    for each, (of_sum, error) in zip(tried, left.reshape(-1, 2), strict=True):
        each.found = Left(_shortest(of_sum, error / 100), float(error))
    wrong = _reduced(
        [np.array([each.wrong() for each in tried], np.float64)],
        reduce_ops.Max,
        f"{name}/wrong",
    )[0].reshape(len(tried), -1)
    return [each.possible(row) for each, row in zip(tried, wrong, strict=True)]


def both(one: Possible, other: Possible) -> Possible:
    """Returns the ways that are possible by two batches."""
    found: Possible = {}
    for way in Way:
        if way not in one or way not in other:
            continue
        known = [each for each in (one[way], other[way]) if each is not None]
        if len(known) == 2:
            error = known[0].error + known[1].error
            if abs(known[0].share - known[1].share) > error:
                continue
        found[way] = min(known, key=lambda each: each.error, default=None)
    return found


def preferred(found: Possible) -> Way:
    """Returns the way to use, the first possible one."""
    return next(way for way in Way if way in found)


def is_undecided(found: Possible) -> bool:
    """Returns whether batches have not determined the way to use so far."""
    return len(found) == len(Way) or (
        preferred(found) is Way.SUM and found[Way.SUM] is None
    )


def combined(
    found: Possible, before: Tensor, value: Tensor, step: Step, name: str
) -> Tensor:
    """Returns the value that one process assigns, in a step on parts.

    Args:
        found: The possible ways.
        before: Tensor, the value that the variable has.
        value: Tensor, the value that this rank assigns.
        step: The step. A rank without rows counts for nothing.
        name: String, the name of the exchange.
    """
    way, dtype = preferred(found), value.dtype
    if way is Way.SAME:
        return value
    carried = _carried(dtype)
    before, value = (
        tf.stop_gradient(tf.cast(each, carried)) for each in (before, value)
    )
    nothing = tf.zeros_like(value)
    op = reduce_ops.Sum
    if way is Way.MEAN:
        value *= tf.cast(step.share(), carried)
    elif way is Way.SUM:
        left = found[Way.SUM]
        share = 1.0 if left is None else left.share
        # Made in this type at once: in 32 bits, the share would be rounded.
        before *= tf.constant(carried.as_numpy_dtype(share), carried)
        value -= before
    else:
        op = reduce_ops.Max if way is Way.MAX else reduce_ops.Min
        end = carried.min if way is Way.MAX else carried.max
        nothing = tf.fill(tf.shape(value), tf.constant(end, carried))
    if not step.is_even:
        value = tf.where(step.share() > 0, value, nothing)
    value = reductions.allreduce(
        value, op, name=name, process_set=step.process_set
    )
    if way is Way.SUM:
        value += before
    return tf.cast(value, dtype)


def _carried(dtype: tf.DType) -> tf.DType:
    if dtype.is_floating:
        return tf.float32 if dtype.size < 4 else dtype
    return tf.int32 if dtype.size < 4 else tf.int64


def _reduced(
    arrays: list[Array], op: reduce_ops.ReduceOp, name: str
) -> list[Array]:
    return [
        np.asarray(each)
        for each in reductions.grouped_allreduce(arrays, op=op, name=name)
    ]


class _Tried:
    """The ways, tried with the values of one assignment.

    Args:
        values: The `Values` of the assignment.
        sums: List of two arrays, the sums over ranks of the parts, and of the
            parts times their shares.
        ends: Tuple of two arrays, the minima and maxima over ranks of the
            parts.
        num_bytes: Integer, the bytes of the smallest type of the computation.
    """

    def __init__(
        self,
        values: Values,
        sums: list[Array],
        ends: tuple[Array, Array],
        num_bytes: int,
    ) -> None:
        dtype = values.whole.dtype
        self._is_float = dtype.kind not in "iub"
        self._sum, self._mean = sums
        self._least, self._most = ends
        self._part, self._whole = (
            each.astype(np.float64) for each in (values.part, values.whole)
        )
        before = values.before.astype(np.float64)
        # The first value of a running maximum may be infinite.
        self._before = np.where(np.isfinite(before), before, 0.0)
        self._is_unchanged = all(
            np.array_equal(each, before, equal_nan=True)
            for each in (self._whole, self._part, self._least, self._most)
        )
        of_all = (self._whole, self._least, self._most)
        self._tolerance = 0.0
        if self._is_float:
            change = max(_largest(each - self._before) for each in of_all)
            size = max(_largest(each) for each in (*of_all, self._before))
            digits = _LAST_DIGITS * topology.size() * _precision(dtype)
            of_change = tolerances.CHANGES[min(dtype.itemsize, num_bytes)]
            self._tolerance = of_change * change + digits * size
        # The share that is left of a sum, once ranks have averaged it.
        self.found = Left(1.0, 0.0)

    def left(self) -> tuple[float, float]:
        """Returns the share that is left of a sum, and its error."""
        others = topology.size() - 1
        before = self._before.ravel()
        norm = float(before @ before)
        if not norm or not others:
            return 1.0, 1.0
        too_much = np.nan_to_num(self._sum - self._whole).ravel()
        share = float(too_much @ before) / (others * norm)
        if not self._is_float:
            return float(round(share)), _OF_SHARE
        error = self._tolerance / (others * _largest(before))
        return share, error + _OF_SHARE

    def wrong(self) -> list[float]:
        """Returns numbers, 1.0 for true and 0.0 for false.

        There is one for each way, in their order, whether it does not give the
        whole; and a last one, whether any value has changed.
        """
        left = self._before * self.found.share
        of_sum = left + (self._sum - topology.size() * left)
        is_left = -self.found.error <= self.found.share <= 1 + self.found.error
        is_same = np.array_equal(self._least, self._most, equal_nan=True)
        return [
            float(each)
            for each in (
                not is_same or self._differs(self._part),
                not self._is_float or self._differs(self._mean),
                not is_left or self._differs(of_sum),
                self._differs(self._most),
                self._differs(self._least),
                not self._is_unchanged,
            )
        ]

    def possible(self, wrong: Array) -> Possible:
        """Returns the possible ways, from the findings of all ranks.

        Args:
            wrong: Array, the maximum over ranks of the result of `wrong`.
        """
        *of_ways, is_changed = wrong
        if not is_changed:
            return dict(ANY)
        found: Possible = {
            way: None for way, bad in zip(Way, of_ways, strict=True) if not bad
        }
        if Way.SUM in found and self.found.error < _UNKNOWN:
            found[Way.SUM] = self.found
        return found

    def _differs(self, found: Array) -> bool:
        finite = np.isfinite(self._whole)
        if not np.array_equal(finite, np.isfinite(found)):
            return True
        apart = _largest(found[finite] - self._whole[finite])
        return apart > self._tolerance


def _largest(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.max(np.abs(finite), initial=0.0))


def _precision(dtype: np.dtype[Any]) -> float:
    # Also for types that NumPy does not have.
    known = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}
    return known.get(dtype.itemsize, 2.0**-3)


def _shortest(number: float, error: float) -> float:
    """Returns the number with the fewest digits that is within `error`."""
    if abs(number) <= error:
        return 0.0
    for digits in range(1, 17):
        short = float(f"{number:.{digits}g}")
        if abs(short - number) <= error:
            return short
    return float(number)
