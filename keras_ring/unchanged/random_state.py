"""The state of the random number generators that are not of models.

These are the generators of Python, of NumPy, of TensorFlow, which draws a seed
for each operation that is executed eagerly, and of `keras.random`.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from keras_ring.keras.lanes import compat


class State(NamedTuple):
    """The state of all generators."""

    of_python: Any
    of_numpy: Any
    # The global seed, and the state of the generator of operation seeds.
    of_tensorflow: tuple[int | None, Any]
    # The state of `keras.random`; `None` with Keras 2.
    of_keras: Any


def get() -> State:
    """Returns the present state."""
    of_operations = _of_operations()
    return State(
        random.getstate(),
        np.random.get_state(),
        (
            context.global_seed(),
            of_operations and of_operations.getstate(),
        ),
        compat.shared_seed(),
    )


def set_to(state: State) -> None:
    """Sets the generators to the state of another rank.

    Args:
        state: The `State` that `get` has returned there.
    """
    random.setstate(state.of_python)
    np.random.set_state(state.of_numpy)
    seed, position = state.of_tensorflow
    if seed != context.global_seed():
        tf.random.set_seed(seed)
    of_operations = _of_operations()
    if of_operations is not None and position is not None:
        of_operations.setstate(position)
    if state.of_keras is not None:
        compat.set_shared_seed(state.of_keras)


def is_same(one: State, other: State) -> bool:
    """Returns whether states are the same.

    Args:
        one: A state.
        other: Another one.
    """
    return (
        one.of_python == other.of_python
        and one.of_tensorflow == other.of_tensorflow
        # These contain arrays.
        and np.array_equal(one.of_keras, other.of_keras)
        and all(
            np.array_equal(a, b)
            for a, b in zip(one.of_numpy, other.of_numpy, strict=True)
        )
    )


def _of_operations() -> random.Random | None:
    # There is no public access to it.
    found: random.Random | None = getattr(context.context(), "_rng", None)
    return found
