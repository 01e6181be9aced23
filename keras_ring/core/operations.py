"""Operations of the runtime on NumPy arrays.

This module checks only what the runtime itself could not handle. The
collectives for programs are in `arrays`.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring.core import failures, native

Arrays = list[npt.NDArray[Any]]


class Kind(enum.IntEnum):
    """The kinds of collectives, with the numbers of the native `KrKind`."""

    allreduce = 0
    allgather = 1
    broadcast = 2
    barrier = 3
    reducescatter = 4
    alltoall = 5
    join = 6


# The kinds whose results have sizes that only the runtime knows.
BY_ROWS = (Kind.allgather, Kind.reducescatter, Kind.alltoall)


class Operation:
    """A collective that was submitted.

    If it is dropped before its end, it still runs, but its results are lost.

    Args:
        native_operation: The `Operation` of the extension module.
        inputs: List of arrays.
        outputs: List of arrays, empty if only the runtime knows their sizes.
    """

    def __init__(
        self, native_operation: Any, inputs: Arrays, outputs: Arrays
    ) -> None:
        self._operation = native_operation
        self._inputs = inputs
        self._outputs = outputs

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the collective has ended.

        Other threads and signal handlers run meanwhile.

        Args:
            seconds: Float, the time limit. Defaults to `None`, no limit.

        Returns:
            Boolean, whether it has ended.

        Raises:
            CollectiveError: If the collective has failed.
        """
        with failures.translated():
            return bool(self._operation.wait(seconds))

    def results(self) -> Arrays:
        """Returns the results. Call it once, after the end."""
        taken = self._operation.take_results()
        if not taken:
            return self._outputs
        results: Arrays = [
            np.ndarray((memory.rows, *array.shape[1:]), array.dtype, memory)
            for memory, array in zip(taken, self._inputs, strict=False)
        ]
        # An alltoall has one more: the rows that came from each rank.
        results += [
            np.ndarray((memory.rows,), np.int64, memory)
            for memory in taken[len(self._inputs) :]
        ]
        return results


def start(
    kind: Kind,
    name: str,
    arrays: Sequence[npt.NDArray[Any]] = (),
    process_set_id: int = 0,
    **settings: Any,
) -> Operation:
    """Submits a collective.

    Args:
        kind: A `Kind`.
        name: String, the name by which ranks match collectives.
        arrays: List of NumPy arrays, which must not change before the end. All
            of them are negotiated, executed and ended together.
        process_set_id: Integer, the number of a process set.
        **settings: For a reduction: `reduce_op` and `compression` (native
            numbers), `prescale` and `postscale`. For a broadcast: `root`. For
            an alltoall: `splits`.

    Returns:
        An `Operation`.

    Raises:
        TypeError: If collectives do not support a dtype.
        CollectiveError: If the runtime does not accept the collective.
    """
    inputs = [_as_native(array) for array in arrays]
    outputs: Arrays = []
    if kind not in BY_ROWS:
        outputs = [np.empty(array.shape, array.dtype) for array in inputs]
    if kind is Kind.join:
        outputs.append(np.empty((), np.int32))
    with failures.translated():
        operation = native.core().Operation(
            process_set_id,
            name,
            int(kind),
            [(number_of(array.dtype), array.shape) for array in inputs],
            **settings,
        )
        operation.start(
            [_address(array) for array in inputs],
            [_address(array) for array in outputs],
            (inputs, outputs),
        )
    return Operation(operation, inputs, outputs)


def run(
    kind: Kind,
    name: str,
    arrays: Sequence[npt.NDArray[Any]] = (),
    process_set_id: int = 0,
    **settings: Any,
) -> Arrays:
    """Submits a collective and returns its results; see `start`."""
    operation = start(kind, name, arrays, process_set_id, **settings)
    operation.wait()
    return operation.results()


def number_of(dtype: npt.DTypeLike) -> int:
    """Returns the native number of a dtype.

    Raises:
        TypeError: If collectives do not support the dtype.
    """
    name = np.dtype(dtype).name
    numbers = _numbers()
    if name not in numbers:
        raise TypeError(
            f"There is no collective of {name} arrays. Expected: "
            f"{', '.join(numbers)}"
        )
    return numbers[name]


@functools.cache
def _numbers() -> dict[str, int]:
    rows = enumerate(native.core().dtypes())
    return {name: number for number, (name, _) in rows}


@functools.cache
def carried() -> frozenset[str]:
    """Returns the names of the dtypes that there are collectives of."""
    return frozenset(_numbers())


@functools.cache
def reducible() -> frozenset[str]:
    """Returns the names of the dtypes that can be reduced."""
    return frozenset(name for name, can_be in native.core().dtypes() if can_be)


def _as_native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns an array as the runtime reads it: contiguous, in native order."""
    dtype = array.dtype
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
