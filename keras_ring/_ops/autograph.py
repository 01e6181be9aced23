"""What AutoGraph may leave as it is written."""

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def do_not_convert(function: _Function) -> _Function:
    """Keeps AutoGraph out of a function, and of all that it calls.

    There is nothing in it to convert: no loop or branch depends on a tensor.
    AutoGraph would find that out for half a second per process.

    Args:
        function: What is called while a `tf.function` is traced.

    Returns:
        The function, with its signature.
    """
    wrapped: _Function = tf.autograph.experimental.do_not_convert(function)
    return wrapped
