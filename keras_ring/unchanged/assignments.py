"""Hooks into assignments to variables.

A layer assigns the state that it keeps from batch to batch in its step, and may
use it at once. So the values that ranks assign are combined when they are
assigned, and not after the step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from keras_ring._typing import Tensor, Variable
from keras_ring.keras import scope
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.tensorflow.autograph import do_not_convert

_PURPOSE = "what steps keep is put together over ranks"


class Watcher(Protocol):
    """An object that observes and changes assignments."""

    def wants(self, variable: Variable) -> bool:
        """Returns whether it observes assignments to a `tf.Variable`."""

    def instead(self, variable: Variable, value: Tensor) -> Tensor:
        """Returns the value to assign in place of another one.

        Args:
            variable: A `tf.Variable`, which still has its old value.
            value: Tensor of its type, the value that is to be assigned.
        """


def install() -> None:
    """Changes the variables of TensorFlow. Calling it once is enough."""
    assign = resource_variable_ops.BaseResourceVariable.assign
    arounds = {
        "assign": _seen,
        "assign_add": functools.partial(_added, assign=assign, sign=1),
        "assign_sub": functools.partial(_added, assign=assign, sign=-1),
    }
    for point in hooks.points(events.ASSIGNED):
        hooks.subscribe(
            events.ASSIGNED,
            arounds[point.name],
            ring=Ring.UNCHANGED,
            purpose=_PURPOSE,
            at=point,
        )


@contextlib.contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Makes a watcher observe the assignments in the context.

    Args:
        watcher: The `Watcher`, or `None` for none.
    """
    with scope.inside(watcher=watcher):
        yield


def _of(variable: Variable) -> Watcher | None:
    watcher: Watcher | None = scope.current().watcher
    if watcher is None or not watcher.wants(variable):
        return None
    return watcher


def _seen(assign: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(assign)
    @do_not_convert
    def assign_seen(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = _of(self)
        if watcher is not None:
            value = tf.convert_to_tensor(value, self.dtype)
            value = watcher.instead(self, value)
        return assign(self, value, *args, **kwargs)

    return assign_seen


def _added(
    add: Callable[..., Any], *, assign: Callable[..., Any], sign: int
) -> Callable[..., Any]:
    @functools.wraps(add)
    @do_not_convert
    def add_seen(self: Any, delta: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = _of(self)
        if watcher is None:
            return add(self, delta, *args, **kwargs)
        delta = tf.convert_to_tensor(delta, self.dtype)
        value = tf.convert_to_tensor(self) + sign * delta
        return assign(self, watcher.instead(self, value), *args, **kwargs)

    return add_seen
