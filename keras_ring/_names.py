"""Names under which ranks recognise each other's tensors.

A name must be the same on every rank, so it is made of what the ranks have in
common: the path of a variable, a position in a structure, or the place in the
program. What depends on what a process has traced before is of no use: one rank
alone may trace a function again, because its last batch is smaller.

And a name must mean one thing. Two collectives of one function may be in flight
in any order, which can differ between ranks; so no two of them have the same
name, whoever has given it.
"""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_ring import _graph, _xla

# How often each name was given out in a graph. The count dies with the graph,
# so a function that is traced again gets the same names again.
_Uses = weakref.WeakKeyDictionary[Any, collections.Counter[str]]
_uses_in_graph: _Uses = weakref.WeakKeyDictionary()
# The same of collectives.
_collectives_in_graph: _Uses = weakref.WeakKeyDictionary()


class _Owner:
    """The thread whose eager collectives need no names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def check(self, kind: str) -> None:
        """Raises if collectives of two threads could be taken for each other.

        Those of one thread follow each other, so one name serves them all.
        Those of two may come in another order on another rank, and nothing
        would tell them apart.
        """
        caller = threading.current_thread()
        # A thread of TensorFlow's that runs a `tf.py_function`: any of them
        # may run any.
        if isinstance(caller, threading._DummyThread):
            return
        with self._lock:
            owner = self._thread
            if owner is None or owner is caller or not owner.is_alive():
                self._thread = caller
                return
        raise ValueError(
            f"`{kind}` was called without a name on thread {caller.name!r},"
            f" and thread {owner.name!r} has made collectives without names"
            " before. The ranks could take those of one thread for those of"
            " the other. Give each collective of the threads a name of its"
            f' own: kr.{kind}(..., name="...").'
        )


_owner = _Owner()


def collective_name(kind: str, name: str | None) -> str:
    """Returns the name of a collective that is being made here.

    In a graph it is that of no other collective there: a name that was given
    before gets a number behind it, in the order of the program.

    Args:
        kind: String, what is made, such as `"allreduce"`.
        name: String, or `None` for the place in the program: the function
            that is traced, and which loop or branch of it.

    Returns:
        A string.

    Raises:
        ValueError: If two threads make eager collectives without names.
    """
    if tf.executing_eagerly():
        if name is None:
            _owner.check(kind)
            # An eager op has finished before the next one starts, so one name
            # serves all, and the ranks' response caches stay small.
            return f"{kind}.eager"
        return name
    graph = tf.compat.v1.get_default_graph()
    if name is None:
        place = _graph.place(graph, compiled=_xla.is_tracing())
        name = f"{kind}.{place}" if place else kind
    uses = _collectives_in_graph.setdefault(graph, collections.Counter())
    return _numbered(name, uses)


def _numbered(name: str, uses: collections.Counter[str]) -> str:
    """Returns `name`, with how often it was used before, if it was."""
    uses[name] += 1
    if uses[name] == 1:
        return name
    # The user may have given that one, too.
    return _numbered(f"{name}#{uses[name] - 1}", uses)


def variable_path(variable: Any) -> str | None:
    """Returns the path of a Keras or TensorFlow variable.

    Args:
        variable: Any object.

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

    Two models may hold variables of one path, and one function may reduce the
    gradients of one variable twice, while both reductions are in flight. So
    a path that was used before, in this call or in the graph that is being
    traced, gets a number behind it. Eager calls finish before the next one
    starts: there only the call itself is looked at.

    Args:
        prefix: String. What the names are for, such as `"gradient"`.
        paths: Paths of variables, in an order that all ranks share.

    Returns:
        A list of strings.
    """
    if tf.executing_eagerly():
        uses: collections.Counter[str] = collections.Counter()
    else:
        uses = _uses_in_graph.setdefault(
            tf.compat.v1.get_default_graph(), collections.Counter()
        )
    return [_numbered(f"{prefix}/{path}", uses) for path in paths]
