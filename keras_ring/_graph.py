"""The one place that touches how TensorFlow orders stateful ops."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry


def run_independently(op: Any) -> None:
    """Lets `op` overlap with other stateful ops of its graph.

    Our ops are stateful, so that TensorFlow runs each as often as the program
    says. In a `tf.function` its automatic control dependencies would then also
    run them one after another, and no two reductions would ever be in flight
    together. The ranks agree on an order of their own, so ours need none.

    `experimental_acd_manager` is TensorFlow's own, not public: set while a
    `tf.function` is traced, and `None` in graphs that have no automatic
    control dependencies. `tests/multiprocess/test_graph.py` fails if it stops
    doing what is said here.

    Args:
        op: A `tf.Operation` made in the current graph.
    """
    if tf.executing_eagerly():
        return
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(op)


def start_early(starts: Sequence[Any], waiting_type: str) -> None:
    """Has `starts` run before the ops made earlier that wait for something.

    Where `starts` need the result of one of those, that one stays before them.

    Args:
        starts: Operations just made in one graph.
        waiting_type: Type of the ops that wait. The last one in the graph is
            that which waits for `starts`.
    """
    operations = starts[0].graph.get_operations()
    waiting = [op for op in operations if op.type == waiting_type][:-1]
    if not waiting:
        return
    needed = _needed_by(starts, operations)
    for op in waiting:
        if op not in needed:
            op._add_control_inputs(starts)


def _needed_by(starts: Sequence[Any], operations: Sequence[Any]) -> set[Any]:
    """Returns all that must run before `starts`, or might have to.

    When the graph is complete, TensorFlow adds an order among the uses of a
    variable, among prints, and so on. What it will add is not known yet, only
    that it follows the order in which ops were made. So a stateful op counts
    as needing all stateful ops made before it, but for ours.
    """
    position = {op: i for i, op in enumerate(operations)}
    stateful = [op for op in operations if _is_ordered(op)]
    taken = 0  # of `stateful`
    needed = set(starts)
    pending = list(starts)
    while pending:
        op = pending.pop()
        sources = [tensor.op for tensor in op.inputs] + list(op.control_inputs)
        if _is_ordered(op):
            while taken < len(stateful) and (
                position[stateful[taken]] < position[op]
            ):
                sources.append(stateful[taken])
                taken += 1
        for source in sources:
            if source not in needed:
                needed.add(source)
                pending.append(source)
    return needed


def _is_ordered(op: Any) -> bool:
    return _is_stateful(op.type) and not op.type.startswith("KerasRing")


@functools.cache
def _is_stateful(op_type: str) -> bool:
    op_def = op_def_registry.get(op_type)
    return op_def is None or bool(op_def.is_stateful)
