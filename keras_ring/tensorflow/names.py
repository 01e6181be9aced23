"""Names by which ranks match their tensors.

A name must be the same on every rank, so it is made from things that all ranks
share: the path of a variable, a position in a structure, or the location in the
program. It must not depend on earlier traces of the process: one rank alone may
trace a function again, because its last batch is smaller.

A name must also be unique. Two collectives of one function may be in flight in
any order, which can differ between ranks, so no two of them have the same name,
not even if the user has given it. Functions that a function calls, and loops
and branches in it, run in the order of the program
(`ordering.run_independently`), so they may use its names again.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterable

import tensorflow as tf

from keras_ring._typing import Graph, Variable
from keras_ring.core.names import eager_name
from keras_ring.tensorflow import ordering, xla


class _Uses:
    """The number of uses of each name.

    Args:
        before: Numbers of uses before a branch begins.
        around: Uses of names in the graph around the branch.
    """

    def __init__(
        self,
        before: collections.Counter[str] | None = None,
        around: _Uses | None = None,
    ) -> None:
        self._counts = collections.Counter(before or {})
        self._around = around
        self._before_branches: tuple[int, collections.Counter[str]] | None
        self._before_branches = None

    def add(self, name: str) -> int:
        """Counts a use of a name, and returns the number of earlier uses."""
        self._raise_to(name, self._counts[name] + 1)
        return self._counts[name] - 1

    def branch(self, num_ops: int) -> _Uses:
        """Returns the uses in a branch, which may use names of other branches.

        Args:
            num_ops: Integer, the number of ops in the outer graph, which is the
                same for all branches of a conditional.
        """
        if self._before_branches is None or (
            self._before_branches[0] != num_ops
        ):
            self._before_branches = num_ops, self._counts.copy()
        return _Uses(self._before_branches[1], self)

    def _raise_to(self, name: str, count: int) -> None:
        self._counts[name] = max(self._counts[name], count)
        if self._around is not None:
            self._around._raise_to(name, count)


# The count dies with the graph, so a function that is traced again gets the
# same names again.
_UsesByGraph = weakref.WeakKeyDictionary[Graph, _Uses]
_uses_in_graph: _UsesByGraph = weakref.WeakKeyDictionary()
# Uses of names of collectives.
_collectives_in_graph: _UsesByGraph = weakref.WeakKeyDictionary()


def _uses_of(graph: Graph, by_graph: _UsesByGraph) -> _Uses:
    """Returns the uses of names that new names in a graph must differ from.

    They are those of the graph and of graphs that run at the same time.
    """
    found = by_graph.get(graph)
    if found is None:
        around = ordering.runs_beside(graph, compiled=xla.is_tracing())
        if around is None:
            found = _Uses()
        elif ordering.is_branch(graph):
            found = _uses_of(around, by_graph).branch(
                len(around.get_operations())
            )
        else:
            found = _uses_of(around, by_graph)
        by_graph[graph] = found
    return found


def collective_name(kind: str, name: str | None) -> str:
    """Returns the name of a collective that is being made.

    In a graph the name is unique: if it was used before, it gets a number as
    suffix, in the order of the program.

    Args:
        kind: String, the kind of collective, such as `"allreduce"`.
        name: String, or `None` for a name by the location in the program: the
            function that is traced, and the loop or branch in it.

    Returns:
        A string.

    Raises:
        ValueError: If two threads make eager collectives without names.
    """
    if tf.executing_eagerly():
        return eager_name(kind, name)
    graph = tf.compat.v1.get_default_graph()
    if name is None:
        location = ordering.program_location(graph, compiled=xla.is_tracing())
        name = f"{kind}.{location}" if location else kind
    return _numbered(name, _uses_of(graph, _collectives_in_graph))


def _numbered(name: str, uses: _Uses) -> str:
    """Returns `name`, with the number of earlier uses if there are any."""
    before = uses.add(name)
    # The user may have given the numbered name, too.
    return _numbered(f"{name}#{before}", uses) if before else name


def variable_path(variable: Variable) -> str | None:
    """Returns the path of a Keras or TensorFlow variable.

    Args:
        variable: Variable object.

    Returns:
        The path, or `None` if `variable` is not a variable.
    """
    path = getattr(variable, "path", None)
    if isinstance(path, str):
        return path
    if isinstance(variable, tf.Variable):
        return str(variable.name).split(":")[0]
    return None


def unique_names(prefix: str, paths: Iterable[str]) -> list[str]:
    """Returns one name per path, all different.

    Two models may have variables of the same path, and one function may reduce
    the gradients of a variable twice, with both reductions in flight. So a path
    that was used before, in this call or in the graph that is being traced,
    gets a number as suffix. Eager calls finish before the next one starts, so
    there only paths of the same call count.

    Args:
        prefix: String, the purpose of the names, such as `"gradient"`.
        paths: Paths of variables, in an order that all ranks share.

    Returns:
        A list of strings.
    """
    if tf.executing_eagerly():
        uses = _Uses()
    else:
        uses = _uses_of(tf.compat.v1.get_default_graph(), _uses_in_graph)
    return [_numbered(f"{prefix}/{path}", uses) for path in paths]
