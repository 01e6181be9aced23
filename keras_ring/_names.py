"""Names under which ranks recognise each other's tensors.

A name must be the same on every rank, so it is made of what the ranks have in
common: the path of a variable, or a position in a structure. TensorFlow's own
op names count upwards in the order of tracing and are of no use here.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

# How often each name was given out in a graph. The count dies with the graph,
# so a function that is traced again gets the same names again.
_uses_in_graph: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = (
    weakref.WeakKeyDictionary()
)


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
    names = []
    for path in paths:
        name = f"{prefix}/{path}"
        uses[name] += 1
        names.append(name if uses[name] == 1 else f"{name}#{uses[name] - 1}")
    return names
