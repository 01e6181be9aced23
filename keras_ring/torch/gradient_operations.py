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
        addresses = []
        views = []
        form = []
        for gradient in gradients:
            if gradient.is_complex():
                gradient = torch.view_as_real(gradient)
            view = tensors.in_order(gradient)
            if view is None or not self._is_native:
                return self._submit_copies(gradients)
            views.append(view)
            addresses.append(view.data_ptr())
            form.append((view.shape, view.dtype))
        where = tensors.device_arguments(views[0])
        key = (views[0].get_device(), *form)
        core = native.core()
        try:
            operation = self._operations.get(key)
            if operation is None:
                operation = self._make(views[0].device, form)
                self._operations[key] = operation
            operation.start(addresses, addresses, views, **where)
        except core.StatusError as error:
            raise failures.error_of(*error.args) from None
        return functools.partial(_wait, operation)

    def _submit_copies(self, gradients: Sequence[Tensor]) -> Waiter:
        values = [
            torch.view_as_real(each) if each.is_complex() else each
            for each in gradients
        ]
        handle = reduction_calls.allreduce(
            values, self._name, self._reduction, in_place=True
        )

        def wait() -> None:
            handle.wait()

        return wait

    def _make(
        self, device: torch.device, form: Sequence[tuple[Any, torch.dtype]]
    ) -> Any:
        return native.core().Operation(
            process_sets.id_of(self._reduction.process_set),
            self._name,
            int(Kind.allreduce),
            [(tensors.number_of(d), tuple(shape)) for shape, d in form],
            device=tensors.kind_of(device),
            **self._reduction.settings([dtype for _, dtype in form]),
        )


def _wait(operation: Any) -> None:
    core = native.core()
    try:
        operation.wait()
    except core.StatusError as error:
        raise failures.error_of(*error.args) from None
