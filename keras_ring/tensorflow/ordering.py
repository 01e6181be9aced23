"""Controls the order of stateful ops in TensorFlow, in this module only."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps, op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    CondBranchFuncGraph,
    ControlFlowFuncGraph,
)

from keras_ring._typing import Graph, Operation

_ORDER = "_keras_ring_order"
_LOCATION = "_keras_ring_program_location"
_OF_XLA = "KerasRingXla"
_MARKS = "KerasRingInputWait"
_PARTS = "_keras_ring_parts"
_IN_ORDER = "_keras_ring_in_order"
_COLLECTIVES = "_keras_ring_collectives"
# Ops that run functions, and the attributes that name these functions.
_CALLS = {
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "While": ("cond", "body"),
}
# The name that TensorFlow gives to a function: the number counts upwards.
_GENERATED = re.compile(r"__(inference|forward|backward)_(?P<name>.*)_\d+")


def run_independently(op: Operation) -> None:
    """Lets `op` overlap with other stateful ops of its graph.

    The ops of keras_ring are stateful, so that TensorFlow runs each of them as
    often as the program says. In a `tf.function`, automatic control
    dependencies would also run them one after another, and no two reductions
    would ever be in flight together. The ranks agree on their own order, so
    these ops need none, except as described in `_run_calls_in_order`.

    `experimental_acd_manager` is private to TensorFlow: it is set while a
    `tf.function` is traced, and `None` in graphs without automatic control
    dependencies. `tests/multiprocess/collectives/test_graph.py` fails if this
    changes.

    Args:
        op: A `tf.Operation` made in the current graph.
    """
    if tf.executing_eagerly():
        return
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(op)


def _run_calls_in_order(op: Operation, reads: object, writes: object) -> bool:
    """Orders calls of functions with the collectives of the caller.

    Collectives of one graph have different names. Those of a called function,
    a loop or a branch may have the same names, and a function may be called
    twice. So an op that contains collectives runs after all collectives before
    it in the program, and before all that follow. TensorFlow itself orders
    calls only if they change the same variables.

    TensorFlow calls this for each op of a function after tracing, to find
    resources that it does not know.

    Args:
        op: A `tf.Operation`.
        reads: Resources that the op reads, which are not changed here.
        writes: Resources that the op writes, which are not changed here.

    Returns:
        Boolean, whether resources were changed.
    """
    if op.type in _CALLS and not hasattr(op.graph, _IN_ORDER):
        setattr(op.graph, _IN_ORDER, True)
        operations = op.graph.get_operations()
        # Functions that XLA compiles have an order of their own.
        if any(each.type.startswith(_OF_XLA) for each in operations):
            return False
        last: Operation = None
        since: list[Operation] = []
        for each in operations:
            if _is_collective(each):
                if last is not None:
                    each._add_control_input(last)
                since.append(each)
            elif _calls_collectives(each):
                each._add_control_inputs(
                    since if last is None else [*since, last]
                )
                last, since = each, []
    return False


auto_control_deps.register_acd_resource_resolver(_run_calls_in_order)


def _is_collective(op: Operation) -> bool:
    # Marks around the input pipeline do not wait for other ranks.
    return bool(
        op.type.startswith("KerasRing") and not op.type.startswith(_MARKS)
    )


def _calls_collectives(op: Operation) -> bool:
    called: list[Any] = []
    for attribute in _CALLS.get(op.type, ()):
        names = op.get_attr(attribute)
        called += names if isinstance(names, list) else [names]
    return any(_has_collectives(op.graph, each.name) for each in called)


def _has_collectives(graph: Graph, name: str) -> bool:
    function = graph._get_function(name)
    # Functions of TensorFlow 1, as in `tf.nn.ctc_loss`, have no graph here, and
    # no collectives.
    body = getattr(function, "graph", None)
    if body is None:
        return False
    found: bool | None = getattr(body, _COLLECTIVES, None)
    if found is None:
        found = any(
            _is_collective(each) or _calls_collectives(each)
            for each in body.get_operations()
        )
        setattr(body, _COLLECTIVES, found)
    return found


def is_branch(graph: Graph) -> bool:
    """Returns whether a graph is one branch of a conditional."""
    return isinstance(graph, CondBranchFuncGraph)


def runs_beside(graph: Graph, *, compiled: bool) -> Graph | None:
    """Returns the outer graph if collectives of both may run together.

    In a `tf.function` they do not (`_run_calls_in_order`). In functions that
    XLA compiles, and in loops and branches of a TensorFlow 1 graph, they may.

    Args:
        graph: A `tf.Graph` that is being built.
        compiled: Boolean, whether XLA compiles it.

    Returns:
        A `tf.Graph` or `None`.
    """
    if not isinstance(graph, FuncGraph):
        return None
    around = graph.outer_graph
    if compiled:
        return around if isinstance(around, FuncGraph) else None
    is_ordered = getattr(graph, "experimental_acd_manager", None) is not None
    is_body = isinstance(graph, ControlFlowFuncGraph)
    return around if is_body and not is_ordered else None


def program_location(graph: Graph, *, compiled: bool = False) -> str:
    """Returns the location of a graph in the program, for names.

    The location does not depend on earlier traces. It is the name of the
    function; or for the body of a loop or a branch, the name of the outer
    function and the number of the body among the bodies of that function that
    have collectives.

    Called functions of the same name run one after the other, except in a
    program that XLA compiles. There they are traced with the caller, and
    numbered like bodies.

    Args:
        graph: A `tf.Graph`.
        compiled: Boolean, whether XLA compiles the function.

    Returns:
        A string, which is empty for a graph that is no function.
    """
    found = getattr(graph, _LOCATION, None)
    if found is None:
        found = _find_program_location(graph, compiled)
        setattr(graph, _LOCATION, found)
    return str(found)


def function_of(graph: Graph) -> Graph:
    """Returns the function that a graph is, or belongs to as loop or branch."""
    while isinstance(graph, ControlFlowFuncGraph):
        graph = graph.outer_graph
    return graph


def _find_program_location(graph: Graph, compiled: bool) -> str:
    if not isinstance(graph, FuncGraph):
        return ""
    around = graph.outer_graph
    is_body = isinstance(graph, ControlFlowFuncGraph)
    if is_body:
        # TensorFlow's own number counts all functions of the process.
        name = re.sub(r"[_\d]+$", "", graph.name)
    else:
        generated = _GENERATED.fullmatch(graph.name)
        name = generated["name"] if generated else graph.name
    if not is_body and not (compiled and isinstance(around, FuncGraph)):
        return str(name)
    parts = getattr(around, _PARTS, None)
    if parts is None:
        parts = collections.Counter()
        setattr(around, _PARTS, parts)
    parts[name] += 1
    return f"{program_location(around, compiled=compiled)}/{name}.{parts[name]}"


def collectives_so_far() -> list[Operation]:
    """Returns the collectives made in the function that is being traced.

    All of them run whenever the function runs. For a TensorFlow 1 graph the
    list is empty: there a session chooses the ops to run.
    """
    graph = tf.compat.v1.get_default_graph()
    if not graph.building_function:
        return []
    return [op for op in graph.get_operations() if _is_collective(op)]


class StartsAndWaits:
    """Orders the ops of one graph that start operations and those that wait.

    The level of an op is the largest number of waiting ops on a path of
    dependencies to it. An op that starts an operation runs before all waiting
    ops of its own level or above. So a rank that waits at some level has
    started all operations up to that level. If operations have the same levels
    on all ranks, ranks cannot wait for each other for ever, in whatever order
    each waits within a level.
    """

    def __init__(self) -> None:
        self._looked_at = 0
        self._levels: dict[str, int] = {}  # by name; those above 0
        self._starts: list[Operation] = []
        self._waits: list[Operation] = []
        self._names_of_waits: set[str] = set()
        self._ordered = 0

    @classmethod
    def of(cls, graph: Graph) -> StartsAndWaits:
        """Returns the order of `graph`."""
        # Kept in the graph, because it refers to the ops of the graph.
        if not hasattr(graph, _ORDER):
            setattr(graph, _ORDER, cls())
        found: StartsAndWaits = getattr(graph, _ORDER)
        return found

    def add(self, starts: Sequence[Operation], wait: Operation) -> None:
        """Puts new ops in order with those added before.

        Args:
            starts: Ops that start operations.
            wait: The op that waits for them.
        """
        self._look(wait.graph)
        self._starts += starts
        self._waits.append(wait)
        self._names_of_waits.add(wait.name)
        for earlier in self._waits[:-1]:
            self._put_before(earlier, starts)
        self._put_before(wait, self._starts)

    def _put_before(self, wait: Operation, starts: Sequence[Operation]) -> None:
        level = self._level(wait)
        early = [start for start in starts if self._level(start) <= level]
        if early:
            wait._add_control_inputs(early)

    def _level(self, op: Operation) -> int:
        return self._levels.get(op.name, 0)

    def _look(self, graph: Graph) -> None:
        """Finds the levels of the ops that were made since the last call.

        When the graph is complete, TensorFlow adds an order among the uses of
        a variable, among prints, and so on. That order is not known yet, but
        it follows the order in which ops were made. So a stateful op counts as
        depending on all earlier stateful ops, except for those of keras_ring.
        """
        operations = graph.get_operations()
        # Before the first waiting op, all ops have level 0.
        for op in operations[self._looked_at :] if self._waits else ():
            level = 0
            for source in (*(t.op for t in op.inputs), *op.control_inputs):
                above = source.name in self._names_of_waits
                level = max(level, self._level(source) + above)
            if _is_ordered(op.type):
                level = self._ordered = max(level, self._ordered)
            if level:
                self._levels[op.name] = level
        self._looked_at = len(operations)


@functools.cache
def _is_ordered(op_type: str) -> bool:
    if op_type.startswith("KerasRing"):
        return False
    op_def = op_def_registry.get(op_type)
    return op_def is None or bool(op_def.is_stateful)
