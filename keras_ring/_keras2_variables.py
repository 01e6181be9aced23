"""The variables of Keras 2 optimizers, of which there are two kinds."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def build(optimizer: Any, variables: Any) -> None:
    """Makes the variables of an optimizer, if it has none."""
    with tf.init_scope():
        if hasattr(optimizer, "build"):
            optimizer.build(variables)
        else:
            # One of `keras.optimizers.legacy`.
            optimizer._create_all_weights(variables)


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer: a method of the legacy ones."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)
