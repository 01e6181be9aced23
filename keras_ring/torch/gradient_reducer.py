"""Reduces gradients while the backward pass computes further ones.

A hook of each parameter submits its gradient as soon as it is there, a small
one with those that follow, and the end of the backward pass waits for all. So
gradients are those of all ranks when `backward()` returns, and whatever a
program does with them next (clipping, unscaling, looking at them) is right. The
hooks are those of `Tensor.register_post_accumulate_grad_hook`, and the wait is
a callback of the autograd engine, as in PyTorch's own data parallelism (Li et
al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
VLDB 2020).

A parameter without a gradient on this rank may have one on another, which
waits for this one. So at the end of a backward pass the ranks tell each other
which gradients they have. A rank adds zeros for those that it alone lacks, and
those that all ranks lack stay `None`, as in one process.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduce_ops import Average, Max
from keras_ring.torch import reduction_calls, sparse
from keras_ring.torch.gradient_operations import GradientOperations, Waiter
from keras_ring.torch.operations import Handle
from keras_ring.torch.reduction_calls import Reduction

# The number of the backward pass that runs.
_current_pass = torch._C._current_graph_task_id

# Gradients are submitted when they have so many bytes together: a call that
# follows another one takes a fifth of the time, and the ranks agree on all of
# them at once.
_HELD_BYTES = 1 << 20

# The states of a gradient, from the least to the most.
_MISSING = 0
_DENSE = 1
_SPARSE = 2


class Bucket:
    """Parameters whose gradients are reduced as one operation.

    Args:
        names: List of strings, the names of the parameters.
        parameters: List of tensors, on one device.
        reduction: A `Reduction`.
        sparse_as_dense: Boolean, whether sparse gradients are reduced as dense
            ones.

    Attributes:
        num_bytes: Integer, the bytes of all gradients, if they are dense.
        arrived: Integer, the number of gradients that are complete.
        is_submitted: Boolean, whether they were submitted since the last
            reduction of all, or are held back until then.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        reduction: Reduction,
        sparse_as_dense: bool,
    ) -> None:
        self.names = list(names)
        self.parameters = list(parameters)
        self.num_bytes = sum(each.nbytes for each in parameters)
        self.arrived = 0
        self.is_submitted = False
        self._reduction = reduction
        self._sparse_as_dense = sparse_as_dense
        self._dense = GradientOperations(names[0], reduction)
        self._waiters: list[Waiter] = []

    def hold(self) -> None:
        """Notes that the gradients are complete, to be submitted later."""
        self.is_submitted = True
        self.arrived = 0

    def states(self) -> list[int]:
        """Returns the states of the gradients."""
        return [
            _MISSING
            if not parameter.requires_grad or parameter.grad is None
            else _DENSE
            if parameter.grad.layout is torch.strided
            else _SPARSE
            for parameter in self.parameters
        ]

    def submit(self) -> None:
        """Submits the gradients that are there."""
        self.hold()
        dense = []
        for name, parameter in zip(self.names, self.parameters, strict=True):
            gradient = parameter.grad
            if gradient is None or not parameter.requires_grad:
                continue
            if gradient.layout is torch.strided:
                dense.append(gradient)
            else:
                self._submit_sparse(name, parameter, gradient)
        if dense:
            self._waiters.append(self._dense.submit(dense))

    def _submit_sparse(
        self, name: str, parameter: Tensor, gradient: Tensor
    ) -> None:
        handle: Handle
        if self._sparse_as_dense:
            handle = reduction_calls.allreduce(
                [gradient.to_dense()], name, self._reduction
            ).then(lambda results: results[0].to_sparse())
        else:
            handle = sparse.allreduce(gradient, name, self._reduction)

        def finish() -> None:
            parameter.grad = handle.wait()

        self._waiters.append(finish)

    def wait(self) -> None:
        """Waits until what was submitted has been reduced."""
        waiters, self._waiters = self._waiters, []
        for wait in waiters:
            wait()


class GradientReducer:
    """Reduces the gradients of an optimizer.

    Args:
        name: String, the name of the optimizer, the same on all ranks.
        reduction: A `Reduction`.
        passes: Integer, the number of backward passes whose gradients are
            accumulated before they are reduced.
        sparse_as_dense: Boolean, whether sparse gradients are reduced as dense
            ones.
        leaves_out: Function that returns whether the present backward pass
            reduces nothing. Defaults to `None`, if each of them reduces.

    Attributes:
        is_complete: Boolean, whether all gradients are reduced, and none was
            computed since.
        is_paused: Boolean, whether backward passes reduce nothing.
    """

    def __init__(
        self,
        name: str,
        reduction: Reduction,
        passes: int,
        sparse_as_dense: bool,
        leaves_out: Callable[[], bool] | None = None,
    ) -> None:
        self._leaves_out = leaves_out
        self.passes = passes
        self.is_complete = False
        self.is_paused = False
        self._reduction = reduction
        self._sparse_as_dense = sparse_as_dense
        self._buckets: list[Bucket] = []
        self._hooked: dict[Tensor, Any] = {}
        # The number of gradients of each parameter since the last reduction.
        self._counts: dict[Tensor, int] = {}
        # The backward passes at whose end the gradients are waited for.
        self._passes: set[int] = set()
        # Buckets that are complete, and are not submitted yet.
        self._held: list[Bucket] = []
        self._held_bytes = 0
        self._states = GradientOperations(
            f"{name}/states", Reduction(Max, process_set=reduction.process_set)
        )

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that take part."""
        return self._reduction.process_set

    def add(self, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
        """Adds parameters whose gradients are reduced as one operation."""
        bucket = Bucket(
            names, parameters, self._reduction, self._sparse_as_dense
        )
        self._buckets.append(bucket)
        self._hook(bucket)

    def complete(self) -> None:
        """Reduces the gradients that are not reduced yet, and waits for all.

        Raises:
            CollectiveError: If a reduction fails.
        """
        self._submit_held()
        for bucket in self._buckets:
            self._hook(bucket)
        own = [state for b in self._buckets for state in b.states()]
        states = torch.tensor(own, dtype=torch.uint8)
        wait_for_states = self._states.submit([states])
        missing = [b for b in self._buckets if not b.is_submitted]
        if missing:
            wait_for_states()
            self._add_missing(states.tolist())
        for bucket in self._buckets:
            bucket.wait()
        wait_for_states()
        self.is_complete = True
        if self._reduction.op is Average:
            self._begin()

    def end_step(self) -> None:
        """Begins anew after a step of the optimizer, or without gradients."""
        self._submit_held()
        for bucket in self._buckets:
            bucket.wait()
        self.is_complete = False
        self._begin()

    def close(self) -> None:
        """Removes the hooks: backward passes reduce nothing from now on."""
        hooks, self._hooked = self._hooked, {}
        for hook in hooks.values():
            hook.remove()
        self._buckets = []
        self._held = []

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Lets backward passes in the `with` statement reduce nothing."""
        before, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = before

    def _hook(self, bucket: Bucket) -> None:
        """Hooks the parameters of a bucket that are trained by now."""
        for parameter in bucket.parameters:
            if parameter.requires_grad and parameter not in self._hooked:
                self._hooked[parameter] = (
                    parameter.register_post_accumulate_grad_hook(
                        self._hook_of(bucket, parameter)
                    )
                )

    def _hook_of(
        self, bucket: Bucket, parameter: Tensor
    ) -> Callable[[Tensor], None]:
        counts = self._counts
        counts[parameter] = 0

        def arrived(_: Tensor) -> None:
            self.is_complete = False
            if self.is_paused or (self._leaves_out and self._leaves_out()):
                return
            self._await_end()
            counts[parameter] += 1
            if counts[parameter] < self.passes:
                return
            counts[parameter] = 0
            bucket.arrived += 1
            if bucket.arrived == len(bucket.parameters):
                self._submit(bucket)

        return _as_it_is(arrived)

    def _submit(self, bucket: Bucket) -> None:
        if bucket.is_submitted:
            if self._reduction.op is not Average:
                raise RuntimeError(
                    f"The gradient of '{bucket.names[0]}' was computed again "
                    f"after its {self._reduction.op.name} over the ranks, "
                    "before `optimizer.step()`. Set `backward_passes_per_step` "
                    "to the number of backward passes, or run all but the last "
                    "under `optimizer.no_sync()`."
                )
            if bucket in self._held:
                return
            raise RuntimeError(
                f"The gradient of '{bucket.names[0]}' was computed again "
                "while its average over the ranks was under way. A backward "
                "pass before this one has ended in an error: call "
                "`optimizer.zero_grad()` after that."
            )
        bucket.hold()
        self._held.append(bucket)
        self._held_bytes += bucket.num_bytes
        # On other devices, an event of the stream of a later gradient would not
        # tell when these are there. A model may have been moved by now.
        is_host = bucket.parameters[0].is_cpu
        if self._held_bytes >= _HELD_BYTES or not is_host:
            self._submit_held()

    def _submit_held(self) -> None:
        """Submits the buckets that were held back."""
        held, self._held = self._held, []
        self._held_bytes = 0
        for bucket in held:
            bucket.submit()

    def _await_end(self) -> None:
        """Waits for the gradients at the end of this backward pass."""
        backward = _current_pass()
        if backward not in self._passes:
            self._passes.add(backward)
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(_as_it_is(self._end_of_backward))

    def _end_of_backward(self) -> None:
        is_last = any(b.is_submitted or b.arrived for b in self._buckets)
        if self.is_paused or not is_last:
            return  # more passes follow
        # Another pass may bring what is missing, and only an average may be
        # computed again then.
        is_average = self._reduction.op is Average
        if is_average or all(b.is_submitted for b in self._buckets):
            self.complete()

    def _add_missing(self, states: Sequence[int]) -> None:
        """Submits what was not submitted.

        Args:
            states: List of integers, the highest state of each gradient among
                the ranks.
        """
        begin = 0
        for bucket in self._buckets:
            end = begin + len(bucket.parameters)
            if not bucket.is_submitted:
                _fill(bucket, states[begin:end])
                bucket.submit()
            begin = end

    def _begin(self) -> None:
        self._passes.clear()
        for parameter in self._counts:
            self._counts[parameter] = 0
        for bucket in self._buckets:
            bucket.arrived = 0
            bucket.is_submitted = False


def _as_it_is(function: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that `torch.compile` leaves out, if it is used."""
    if "torch._dynamo" not in sys.modules:
        # To import it takes a second.
        return function
    left_out: Callable[..., None] = torch.compiler.disable(function)
    return left_out


def _fill(bucket: Bucket, states: Sequence[int]) -> None:
    """Gives a bucket zeros where another rank has a gradient.

    Args:
        bucket: A `Bucket` that was not submitted.
        states: List of integers, the states among all ranks.
    """
    for parameter, state in zip(bucket.parameters, states, strict=True):
        if not parameter.requires_grad or parameter.grad is not None:
            continue
        if state == _DENSE:
            parameter.grad = torch.zeros_like(parameter)
        elif state == _SPARSE:
            parameter.grad = sparse.no_rows(parameter)
