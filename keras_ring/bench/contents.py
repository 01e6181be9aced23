"""The contents of a case's tensors, and the expected results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring.bench.case import Case

# Values repeat after so many elements. It is a prime number, so that a part of
# a tensor that ends up at the position of another one is detected.
_PERIOD = 61
# Results are compared in parts of so many elements, so that the comparison
# needs little memory: the memory of the measured system is measured.
_PART = _PERIOD << 12
# The distance from 1 to the next number.
_PRECISIONS = {
    "float16": 2**-10,
    "bfloat16": 2**-7,
    "float32": 2**-23,
    "float64": 2**-52,
}

Values = npt.NDArray[np.float64]
# Functions from the stacked values of all ranks to the result of a reduction.
_REDUCTIONS: dict[str, Callable[[Values], Values]] = {
    "Average": lambda values: values.mean(axis=0),
    "Sum": lambda values: values.sum(axis=0),
    "Min": lambda values: values.min(axis=0),
    "Max": lambda values: values.max(axis=0),
    "Product": lambda values: values.prod(axis=0),
}


class WrongResultError(RuntimeError):
    """A collective returned a wrong result."""


def period(op: str, index: int, rank: int) -> Values:
    """Returns one period of a rank's values in tensor number `index`.

    The values are small integers. Every dtype can represent them, and their
    sums over dozens of ranks.
    """
    values = 1.0 + (np.arange(_PERIOD) + index) % 7
    if op == "Product":
        # Otherwise the product would soon be too large.
        values = values if rank == 0 else np.full(_PERIOD, 1.0 + (rank == 1))
    else:
        values = values + rank % 3
    return values.astype(np.float64)


def expected_period(op: str, index: int, size: int) -> Values:
    """Returns one period of the expected result of the reduction."""
    ranks = np.stack([period(op, index, rank) for rank in range(size)])
    return _REDUCTIONS[op](ranks)


def arrays(
    case: Case, rank: int, dtype: str | None = None
) -> list[npt.NDArray[Any]]:
    """Returns a rank's tensors as NumPy arrays.

    Args:
        case: The case.
        rank: Integer, the rank.
        dtype: Name of the dtype of the arrays. Defaults to that of the case,
            which NumPy may not have.
    """
    return [
        np.resize(period(case.op, index, rank), shape).astype(
            dtype or case.dtype
        )
        for index, shape in enumerate(case.shapes)
    ]


def expected(case: Case, size: int) -> list[Values]:
    """Returns one period of each expected result."""
    return [
        expected_period(case.op, index, size)
        for index in range(len(case.shapes))
    ]


def check(
    case: Case, results: Sequence[npt.ArrayLike], right: list[Values]
) -> None:
    """Compares all elements of a case's results.

    Args:
        case: The case that was run.
        results: Arrays, or objects that convert to arrays, in the order of the
            shapes.
        right: One period of each result, as `expected` returns it.

    Raises:
        WrongResultError: If an element is wrong; the text names the first.
    """
    if len(results) != len(case.shapes):
        raise WrongResultError(
            f"{case.name}: {len(results)} results for {len(case.shapes)} "
            "tensors"
        )
    for index, result in enumerate(results):
        _check_tensor(case, index, np.asarray(result), right[index])


def _check_tensor(
    case: Case, index: int, result: npt.NDArray[Any], values: Values
) -> None:
    where = f"{case.name}: tensor {index} of {len(case.shapes)}"
    if result.shape != case.shapes[index]:
        raise WrongResultError(
            f"{where} has shape {result.shape}, not {case.shapes[index]}"
        )
    if not case.dtype.startswith(("float", "bfloat")):
        # Averages of integers are rounded down; sums wrap around.
        values = np.floor(values).astype(np.int64)
    flat = result.reshape(-1)
    part = np.resize(values.astype(result.dtype), min(_PART, flat.size))
    wrong = np.concatenate(
        [
            start
            + _wrong_indexes(flat[start : start + _PART], part, case.wire_dtype)
            for start in range(0, flat.size, _PART)
        ]
        or [np.empty(0, dtype=np.int64)]
    )
    if wrong.size:
        first = int(wrong[0])
        element = tuple(map(int, np.unravel_index(first, result.shape)))
        raise WrongResultError(
            f"{where} is wrong in {wrong.size} of {flat.size} elements: "
            f"element {element} is {flat[first]}, not {part[first % _PART]}"
        )


def _wrong_indexes(
    found: npt.NDArray[Any], right: npt.NDArray[Any], dtype: str
) -> npt.NDArray[np.int64]:
    right = right[: found.size]
    wrong = found != right
    if wrong.any() and dtype in _PRECISIONS:
        # Averages and large sums are rounded, so this comparison has a
        # tolerance. It is seldom needed, hence only for elements that differ.
        wrong[wrong] = ~np.isclose(
            found[wrong].astype(np.float64),
            right[wrong].astype(np.float64),
            rtol=2 * _PRECISIONS[dtype],
            atol=0.0,
        )
    return np.flatnonzero(wrong)
