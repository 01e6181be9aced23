"""Collectives of PyTorch's tensors that were submitted, and their handles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from keras_ring.core import failures, native, process_sets
from keras_ring.core.names import eager_name
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet
from keras_ring.torch import tensors

# So many collectives without names may be in flight at a time.
_UNNAMED = 4096
_counts = {kind: itertools.count() for kind in Kind}


class Handle:
    """A collective that was submitted. `synchronize` returns its result.

    If a handle is dropped, its collective still runs to its end.

    Args:
        operation: The native operation.
        finish: Function without arguments, which is called once, after the end,
            and returns the result.
    """

    __slots__ = ("_finish", "_operation", "_result")

    def __init__(self, operation: Any, finish: Callable[[], Any]) -> None:
        self._operation = operation
        self._finish: Callable[[], Any] | None = finish
        self._result: Any = None

    def poll(self) -> bool:
        """Returns whether the collective has ended."""
        return self._operation is None or bool(self._operation.is_done())

    def wait(self) -> Any:
        """Waits for the end and returns the result; see `synchronize`."""
        if self._operation is not None:
            operation, self._operation = self._operation, None
            with failures.translated():
                operation.wait()
        return self._finished()

    __call__ = wait

    def then(self, function: Callable[[Any], Any]) -> Handle:
        """Returns a handle whose result is a function of this one's."""
        return Handle(self._operation, lambda: function(self._finished()))

    def _finished(self) -> Any:
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._result = finish()
        return self._result


def poll(handle: Handle) -> bool:
    """Returns whether a collective has ended.

    Args:
        handle: The result of a function whose name has `async`.

    Returns:
        Boolean. After `True`, `synchronize(handle)` does not wait.
    """
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for the end of a collective.

    Other threads of Python run meanwhile.

    Args:
        handle: The result of a function whose name has `async`.

    Returns:
        The result: a tensor, or a list of tensors of a group.

    Raises:
        FailedPreconditionError: If the ranks disagree.
        UnavailableError: If a rank is lost or has left the job.

    Example:
    ```python
    handle = kr.allreduce_async(tensor, name="statistics")
    compute()
    mean = kr.synchronize(handle)
    ```
    """
    return handle.wait()


def name_of(kind: Kind, name: str | None, *, is_async: bool) -> str:
    """Returns the name of a collective.

    Args:
        kind: The `Kind` of the collective.
        name: String, the name that the program gives, or `None`.
        is_async: Boolean, whether others may begin before it ends.

    Returns:
        String. Names are used again, which keeps the ranks' response caches
        small.
    """
    if name is not None or not is_async:
        return eager_name(kind.name, name)
    eager_name(kind.name, None)
    return f"{kind.name}.async.{next(_counts[kind]) % _UNNAMED}"


def start(
    kind: Kind,
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor] | None,
    process_set: ProcessSet,
    **settings: Any,
) -> Any:
    """Submits a collective.

    Args:
        kind: A `Kind`.
        name: String, the name by which ranks match collectives.
        inputs: List of contiguous tensors on one device.
        outputs: List of contiguous tensors for the results; each may be its
            input. `None` for the kinds in `BY_ROWS`, whose inputs must be in
            host memory.
        process_set: A `ProcessSet`.
        **settings: As in `core.operations.start`.

    Returns:
        The native operation.

    Raises:
        CollectiveError: If the runtime does not accept the collective.
    """
    made = () if outputs is None else outputs
    device = inputs[0].device if inputs else torch.device("cpu")
    with failures.translated():
        operation = native.core().Operation(
            process_sets.id_of(process_set),
            name,
            int(kind),
            [
                (tensors.number_of(each.dtype), tuple(each.shape))
                for each in inputs
            ],
            device=tensors.kind_of(device),
            **settings,
        )
        operation.start(
            [each.data_ptr() for each in inputs],
            [each.data_ptr() for each in made],
            (inputs, outputs),
            **(tensors.device_arguments(inputs[0]) if inputs else {}),
        )
    return operation


def rows_of(operation: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Returns the results of a collective whose sizes the runtime knew.

    Args:
        operation: The native operation of a kind in `BY_ROWS`, after its end.
        inputs: Its inputs.

    Returns:
        A list of tensors of the dtypes of `inputs`; of an alltoall one more,
        the rows that came from each rank, of int64.
    """
    results = []
    taken = operation.take_results()
    for i, memory in enumerate(taken):
        is_tensor = i < len(inputs)
        dtype = inputs[i].dtype if is_tensor else torch.int64
        shape = (memory.rows, *(inputs[i].shape[1:] if is_tensor else ()))
        if 0 in shape:
            results.append(torch.empty(shape, dtype=dtype))
        else:
            flat = torch.frombuffer(memory, dtype=dtype)
            results.append(flat.reshape(shape))
    return results
