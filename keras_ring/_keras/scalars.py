"""Scalar variables between steps.

By the operations alone: what `tf.Variable` and `keras.Variable` do around them
takes several times as long, and each step waits for it.
"""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Variable


def read(variable: Variable) -> float:
    """Returns the value of a `tf.Variable` without dimensions, now."""
    value = tf.raw_ops.ReadVariableOp(
        resource=variable.handle, dtype=variable.dtype
    )
    return float(value.numpy())


def write(variable: Variable, value: float) -> None:
    """Sets a `tf.Variable` without dimensions, now."""
    tf.raw_ops.AssignVariableOp(
        resource=variable.handle, value=tf.constant(value, variable.dtype)
    )
