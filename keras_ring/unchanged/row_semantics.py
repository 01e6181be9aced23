"""Ways in which values of parts of a batch make the value of the whole.

A function of the program's own returns losses, counts or predictions, and
counts in metrics. Each of these values is computed for a batch and for its
parts, which are unequal, to find out which way holds: a mean over rows, a sum
over rows, one value per row, or no dependence on the rows.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from keras_ring.core import reduce_ops
from keras_ring.keras.backends import backend
from keras_ring.tensorflow import gathers, reductions
from keras_ring.unchanged import tolerances

# Numbers up to this are what rounding leaves where larger ones cancel, as in
# the mean of a difference that is zero at first. By bytes of a number.
_NOISE = {4: 8 * float(np.finfo(np.float32).eps), 8: 1e-14}

Values = Sequence[npt.NDArray[np.generic]]


class Way(enum.Enum):
    """The way in which a value depends on the rows of a batch."""

    SAME = "does not depend on them"
    MEAN = "a mean over them"
    SUM = "a sum over them"
    ROWS = "one for each"


Ways = frozenset[Way]
ALL: Ways = frozenset(Way)


def possible(
    whole: Values,
    parts: Values,
    rows: int,
    own_rows: int,
    name: str,
    num_bytes: int = 8,
) -> list[Ways]:
    """Returns the possible ways of each value, the same on all ranks.

    All ranks must call this.

    Args:
        whole: Sequence of values that were computed for a batch.
        parts: Sequence of the same values for the rows of this rank.
        rows: Integer, the rows of the batch.
        own_rows: Integer, the rows of this rank, at least 1.
        name: String, the prefix of the names of the exchanges.
        num_bytes: Integer, the bytes of the smallest type that the values were
            computed in, if it is smaller than theirs. Defaults to `8`.
    """
    sizes = [_bytes_of(each, num_bytes) for each in whole]
    whole, parts = [*map(_comparable, whole)], [*map(_comparable, parts)]
    scale = max((_largest(each) for each in whole), default=0.0)
    wrong = np.ones([len(whole), len(Way)])
    summed = [i for i, w in enumerate(whole) if _is_alike(w, parts[i])]
    totals = reductions.grouped_allreduce(
        [
            tensor
            for i in summed
            for tensor in (
                backend.cast(parts[i], "float64"),
                backend.cast(parts[i], "float64") * (own_rows / rows),
            )
        ],
        op=reduce_ops.Sum,
        name=f"{name}/sums",
    )
    order = list(Way)
    for index, i in enumerate(summed):
        for way, found in (
            (Way.SAME, parts[i]),
            (Way.SUM, np.asarray(totals[2 * index])),
            (Way.MEAN, np.asarray(totals[2 * index + 1])),
        ):
            wrong[i, order.index(way)] = _differs(
                whole[i], found, sizes[i], scale
            )
    for i, (of_whole, part) in enumerate(zip(whole, parts, strict=True)):
        if (
            of_whole.ndim
            and of_whole.shape == (rows, *part.shape[1:])
            and len(part) == own_rows
        ):
            found = gathers.allgather(part, name=f"{name}/rows/{i}")
            wrong[i, order.index(Way.ROWS)] = _differs(
                of_whole, np.asarray(found), sizes[i], scale
            )
        elif of_whole.dtype == object or part.dtype == object:
            same = np.array_equal(of_whole, part)
            wrong[i, order.index(Way.SAME)] = not same
    wrong = np.asarray(
        reductions.allreduce(wrong, op=reduce_ops.Max, name=f"{name}/wrong")
    )
    return [
        frozenset(way for way, bad in zip(order, row, strict=True) if not bad)
        for row in wrong
    ]


def is_zero(values: npt.NDArray[np.generic]) -> bool:
    """Returns whether a value is zero, so that sum and mean are the same.

    It may be so up to rounding.
    """
    return values.dtype != object and (
        not np.any(values) or _is_noise(values, values.dtype.itemsize)
    )


def _is_noise(values: npt.NDArray[np.generic], num_bytes: int) -> bool:
    """Returns whether numbers are nothing but what rounding leaves."""
    return (
        values.dtype.kind == "f"
        and bool(np.isfinite(values).all())
        and _largest(values) <= _NOISE.get(num_bytes, 0.0)
    )


def _bytes_of(value: npt.NDArray[np.generic], num_bytes: int) -> int:
    """Returns the bytes of the type by whose rounding a value is compared."""
    is_exact = value.dtype.kind in "iubOSU"
    return 8 if is_exact else min(value.dtype.itemsize, num_bytes)


def _comparable(
    value: npt.NDArray[np.generic],
) -> npt.NDArray[np.generic]:
    # There are collectives for NumPy's own types only.
    if value.dtype.kind in "fiub":
        return value
    if value.dtype.kind in "OSU":
        return value.astype(object)
    return value.astype(np.float64)


def _is_alike(
    one: npt.NDArray[np.generic], other: npt.NDArray[np.generic]
) -> bool:
    return one.dtype != object and one.shape == other.shape


def _differs(
    wanted: npt.NDArray[np.generic],
    found: npt.NDArray[np.generic],
    num_bytes: int,
    scale: float,
) -> bool:
    if wanted.shape != found.shape:
        return True
    if _is_noise(wanted, num_bytes) and _is_noise(found, num_bytes):
        return False
    of_one, of_all = tolerances.VALUES[num_bytes]
    a, b = wanted.astype(np.float64), found.astype(np.float64)
    if not (np.isfinite(a) == np.isfinite(b)).all():
        return True
    a, b = a[np.isfinite(a)], b[np.isfinite(a)]
    return _largest(a - b) > of_one * _largest(a) + of_all * scale


def _largest(array: npt.NDArray[np.generic]) -> float:
    if array.dtype == object:
        return 0.0
    finite = array[np.isfinite(array)].astype(np.float64)
    return float(np.max(np.abs(finite), initial=0.0))
