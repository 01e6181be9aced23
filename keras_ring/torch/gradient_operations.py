"""Reductions of gradients, which are the same in each step."""

from __future__ import annotations

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
            torch.view_as_real(each) if each.is_complex() else each.detach()
            for each in gradients
        ]
        ordered = [tensors.in_order(value) for value in values]
        views = [view for view in ordered if view is not None]
        if not self._is_native or len(views) < len(values):
            handle = reduction_calls.allreduce(
                values, self._name, self._reduction, in_place=True
            )
            return lambda: handle.wait() and None
        form = tuple((view.shape, view.dtype, view.device) for view in views)
        core = native.core()
        addresses = [view.data_ptr() for view in views]
        device = views[0].device
        try:
            operation = self._operations.get(form)
            if operation is None:
                operation = self._make(form)
            operation.start(
                addresses, addresses, views, **tensors.placed(device)
            )
        except core.StatusError as error:
            raise failures.error_of(*error.args) from None

        def wait() -> None:
            try:
                operation.wait()
            except core.StatusError as error:
                raise failures.error_of(*error.args) from None

        return wait

    def _make(self, form: tuple[Any, ...]) -> Any:
        dtypes = [dtype for _, dtype, _ in form]
        operation = native.core().Operation(
            process_sets.id_of(self._reduction.process_set),
            self._name,
            int(Kind.allreduce),
            [(tensors.number_of(d), tuple(shape)) for shape, d, _ in form],
            device=tensors.kind_of(form[0][2]),
            **self._reduction.settings(dtypes),
        )
        self._operations[form] = operation
        return operation
