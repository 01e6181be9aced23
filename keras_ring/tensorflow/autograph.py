"""Keeps AutoGraph out of functions that need no conversion."""

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def do_not_convert(function: _Function) -> _Function:
    """Keeps AutoGraph out of a function and of all functions that it calls.

    The function needs no conversion: no loop or branch depends on a tensor.
    AutoGraph would need half a second per process to find that out.

    Args:
        function: A function that is called while a `tf.function` is traced.

    Returns:
        The function, with its signature.
    """
    wrapped: _Function = tf.autograph.experimental.do_not_convert(function)
    return wrapped
