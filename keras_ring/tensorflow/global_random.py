"""The state of the random numbers that TensorFlow draws without a generator.

TensorFlow draws a seed for each operation that is executed eagerly.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import random_seed


class State(NamedTuple):
    """The state of TensorFlow's random numbers.

    Args:
        seed: Integer, the global seed, or `None` if there is none.
        position: The state of the generator of operation seeds, or `None`.
    """

    seed: int | None
    position: Any


def get() -> State:
    """Returns the present state."""
    of_operations = _of_operations()
    return State(
        context.global_seed(), of_operations and of_operations.getstate()
    )


def set_to(state: State) -> None:
    """Sets the state to that of another rank.

    Args:
        state: The `State` that `get` has returned there.
    """
    if state.seed != context.global_seed():
        tf.random.set_seed(state.seed)
    of_operations = _of_operations()
    if of_operations is not None and state.position is not None:
        of_operations.setstate(state.position)


def seed_by_default() -> None:
    """Sets the global seed that TensorFlow uses if there is none.

    Operations with a seed of their own then draw the same as without it, and
    other operations draw the same on all ranks.
    """
    tf.random.set_seed(random_seed.DEFAULT_GRAPH_SEED)


def _of_operations() -> random.Random | None:
    # There is no public access to it.
    found: random.Random | None = getattr(context.context(), "_rng", None)
    return found
