"""The state of the random number generators that are not of models.

These are the generators of Python, of NumPy, of the framework and of
`keras.random`.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat


class State(NamedTuple):
    """The state of all generators."""

    of_python: Any
    of_numpy: Any
    of_framework: Any
    # The state of `keras.random`; `None` with Keras 2.
    of_keras: Any


def get() -> State:
    """Returns the present state."""
    return State(
        random.getstate(),
        np.random.get_state(),
        backend.program_random_state(),
        compat.shared_seed(),
    )


def set_to(state: State) -> None:
    """Sets the generators to the state of another rank.

    Args:
        state: The `State` that `get` has returned there.
    """
    random.setstate(state.of_python)
    np.random.set_state(state.of_numpy)
    backend.set_program_random_state(state.of_framework)
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
        and one.of_framework == other.of_framework
        # These contain arrays.
        and np.array_equal(one.of_keras, other.of_keras)
        and all(
            np.array_equal(a, b)
            for a, b in zip(one.of_numpy, other.of_numpy, strict=True)
        )
    )
