"""Submits collectives of NDArrays that were checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
import numpy as np

from keras_ring.core import failures, native, operations, process_sets
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet
from keras_ring.mxnet import tensors
from keras_ring.mxnet.tensors import NDArray


class Handle:
    """A collective that was submitted.

    Args:
        operation: The native operation.
        finish: Function without arguments, which is called once, after the
            end, and returns the results.
    """

    def __init__(
        self, operation: Any, finish: Callable[[], list[NDArray]]
    ) -> None:
        self._operation = operation
        self._finish = finish

    def wait(self) -> list[NDArray]:
        """Waits for the end and returns the results. Call it once."""
        with failures.translated():
            self._operation.wait()
        return self._finish()


def start(
    kind: Kind,
    name: str,
    inputs: Sequence[NDArray],
    outputs: Sequence[NDArray] | None,
    process_set: ProcessSet,
    **settings: Any,
) -> Handle:
    """Submits a collective.

    Args:
        kind: A `Kind`.
        name: String, the name by which ranks match collectives.
        inputs: List of NDArrays.
        outputs: List of NDArrays of the same shapes for the results; each may
            be its input. `None` for the kinds in `BY_ROWS`.
        process_set: A `ProcessSet`.
        **settings: As in `core.operations.start`.

    Returns:
        A `Handle`, whose results are `outputs`, or the rows that have come.

    Raises:
        CollectiveError: If the runtime does not accept the collective.
    """
    made = () if outputs is None else outputs
    sent = [tensors.address_of(each) for each in inputs]
    written = [tensors.address_of(each) for each in made]
    with failures.translated():
        operation = native.core().Operation(
            process_sets.id_of(process_set),
            name,
            int(kind),
            [
                (operations.number_of(tensors.dtype_of(each)), each.shape)
                for each in inputs
            ],
            **settings,
        )
        operation.start(sent, written, (inputs, outputs))
    if outputs is None:
        return Handle(operation, lambda: _rows_of(operation, inputs))
    return Handle(operation, lambda: list(outputs))


def _rows_of(operation: Any, inputs: Sequence[NDArray]) -> list[NDArray]:
    """Returns the results of a collective whose sizes the runtime knew."""
    results = []
    for i, memory in enumerate(operation.take_results()):
        is_tensor = i < len(inputs)
        dtype = tensors.dtype_of(inputs[i]) if is_tensor else np.dtype(np.int64)
        rest = inputs[i].shape[1:] if is_tensor else ()
        array = np.ndarray((memory.rows, *rest), dtype, memory)
        # Otherwise 0 in a shape stands for an unknown number.
        with mx.util.np_shape(True):
            results.append(mx.nd.array(array, dtype=dtype))
    return results
