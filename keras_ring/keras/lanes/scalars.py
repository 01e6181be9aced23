"""Reading and writing of scalar variables between steps.

Bare operations are used, because what `tf.Variable` and `keras.Variable` add
takes several times as long, and each step waits for it.
"""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Variable


def read(variable: Variable) -> float:
    """Returns the present value of a scalar `tf.Variable`."""
    value = tf.raw_ops.ReadVariableOp(
        resource=variable.handle, dtype=variable.dtype
    )
    return float(value.numpy())


def write(variable: Variable, value: float) -> None:
    """Sets the value of a scalar `tf.Variable` at once."""
    tf.raw_ops.AssignVariableOp(
        resource=variable.handle, value=tf.constant(value, variable.dtype)
    )
