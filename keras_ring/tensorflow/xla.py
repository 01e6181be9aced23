"""Collectives in functions that XLA compiles (`jit_compile=True`).

XLA runs ops with side effects one after another, in an order of its own. So a
collective consists of two ops there: one that starts it and one that waits for
it. `ordering.StartsAndWaits` ensures that ranks that wait in different orders
do not wait for each other for ever.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import types
from collections.abc import Iterator, Sequence
from typing import NoReturn

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from keras_ring._typing import Gradient, Operation, Tensor
from keras_ring.tensorflow import libraries, ordering
from keras_ring.tensorflow.autograph import do_not_convert

# True inside of `compiling()`: gradients of a compiled function may be traced
# outside of it.
_compiling: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "keras_ring_compiling", default=False
)


def is_tracing() -> bool:
    """Returns whether new ops become part of a program that XLA compiles.

    `GraphOrParentsInXlaContext` is private to TensorFlow, whose loops use it
    for the same purpose. `tests/multiprocess/collectives/test_xla.py` fails if
    its meaning changes.
    """
    if tf.executing_eagerly():
        return False
    return _compiling.get() or bool(
        control_flow_util.GraphOrParentsInXlaContext(
            tf.compat.v1.get_default_graph()
        )
    )


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Makes `is_tracing` return `True` while a graph is being built."""
    token = _compiling.set(True)
    try:
        yield
    finally:
        _compiling.reset(token)


def reject(what: str, name: str, advice: str) -> NoReturn:
    """Raises the error for a collective that XLA cannot compile.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        f"{what} {name!r} cannot be compiled by XLA, and this function has "
        f"`jit_compile=True`. {advice}"
    )


@dataclasses.dataclass(frozen=True)
class Start:
    """A collective to be started.

    Args:
        tensors: The inputs of the collective.
        attributes: The attributes of its `KerasRingXlaStart`.
        rows: For each tensor, the number of rows of its result, or -1 for that
            of the tensor. Defaults to -1 for all tensors.
    """

    tensors: Sequence[Tensor]
    attributes: dict[str, int | str]
    rows: Sequence[int] | None = None


@do_not_convert
def run(starts: Sequence[Start]) -> list[list[Tensor]]:
    """Starts collectives, then waits for all of them.

    Args:
        starts: A list of `Start`.

    Returns:
        For each collective, the list of results.
    """
    ops = libraries.xla_ops()
    tickets = [
        ops.keras_ring_xla_start(tensors=start.tensors, **start.attributes)
        for start in starts
    ]
    like = [tensor for start in starts for tensor in start.tensors]
    rows = [
        count
        for start in starts
        for count in start.rows or [-1] * len(start.tensors)
    ]
    results = iter(
        ops.keras_ring_xla_done(tickets=tickets, like=like, rows=rows)
    )
    grouped = [[next(results) for _ in start.tensors] for start in starts]
    for tensor in (*tickets, grouped[0][0]):
        ordering.run_independently(tensor.op)
    wait = grouped[0][0].op
    ordering.StartsAndWaits.of(wait.graph).add(
        [ticket.op for ticket in tickets], wait
    )
    return grouped


def started(
    op: Operation, gradients: Sequence[Gradient]
) -> Iterator[tuple[Operation, Sequence[Gradient]]]:
    """Yields the collectives that a waiting op waits for.

    Args:
        op: A `KerasRingXlaDone`.
        gradients: The gradients of its results.

    Yields:
        For each collective, an object with the interface of its op, and its
        gradients.
    """
    tickets = op.get_attr("N")
    position = 0
    for ticket in op.inputs[:tickets]:
        start = ticket.op
        end = position + len(start.inputs)
        like = types.SimpleNamespace(
            get_attr=start.get_attr,
            inputs=op.inputs[tickets + position : tickets + end],
            outputs=op.outputs[position:end],
        )
        yield like, gradients[position:end]
        position = end
