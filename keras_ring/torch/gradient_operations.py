"""Reductions of gradients, which are the same in each step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from keras_ring.core import failures, native, process_sets
from keras_ring.core.operations import Kind
from keras_ring.torch import reduction_calls, tensors
from keras_ring.torch.compression import native_of
from keras_ring.torch.reduction_calls import Reduction

Waiter = Callable[[], None]


class GradientOperations:
    """Reduces a list of gradients in place, step after step.

    A native operation is kept for each form that the gradients have had, so
    that a step only submits it with their addresses.

    Args:
        name: String, by which ranks match the reduction.
        reduction: A `Reduction`.
    """

    def __init__(self, name: str, reduction: Reduction) -> None:
        self._name = name
        self._reduction = reduction
        self._is_native = native_of(reduction.compression) is not None
        self._operations: dict[tuple[Any, ...], Any] = {}

    def submit(self, gradients: Sequence[Tensor]) -> Waiter:
        """Submits gradients of one device.

        Args:
            gradients: List of dense tensors, which must not be used until the
                end.

        Returns:
            A function that waits for the end. Then the gradients are reduced.

        Raises:
            CollectiveError: If the runtime does not accept them. The function
                raises it if the reduction fails.
        """
        values = [
            torch.view_as_real(each) if each.is_complex() else each
            for each in gradients
        ]
        views = [
            view
            for value in values
            if (view := tensors.in_order(value)) is not None
        ]
        if not self._is_native or len(views) < len(values):
            return self._submit_copies(values)
        core = native.core()
        addresses = [view.data_ptr() for view in views]
        form = tuple([(view.shape, view.dtype) for view in views])
        device = views[0].device
        try:
            operation = self._operations.get((device, form))
            if operation is None:
                operation = self._make(device, form)
            operation.start(
                addresses, addresses, views, **tensors.device_arguments(device)
            )
        except core.StatusError as error:
            raise failures.error_of(*error.args) from None
        return functools.partial(_wait, operation)

    def _submit_copies(self, values: Sequence[Tensor]) -> Waiter:
        handle = reduction_calls.allreduce(
            values, self._name, self._reduction, in_place=True
        )

        def wait() -> None:
            handle.wait()

        return wait

    def _make(
        self, device: torch.device, form: Sequence[tuple[Any, torch.dtype]]
    ) -> Any:
        operation = native.core().Operation(
            process_sets.id_of(self._reduction.process_set),
            self._name,
            int(Kind.allreduce),
            [(tensors.number_of(d), tuple(shape)) for shape, d in form],
            device=tensors.kind_of(device),
            **self._reduction.settings([dtype for _, dtype in form]),
        )
        self._operations[device, form] = operation
        return operation


def _wait(operation: Any) -> None:
    core = native.core()
    try:
        operation.wait()
    except core.StatusError as error:
        raise failures.error_of(*error.args) from None
