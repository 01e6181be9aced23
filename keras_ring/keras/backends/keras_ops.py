"""Functions of tensors of the framework that Keras 3 computes with."""

from __future__ import annotations

import keras

from keras_ring._typing import Tensor

broadcast_to = keras.ops.broadcast_to
cast = keras.ops.cast
concatenate = keras.ops.concatenate
expand_dims = keras.ops.expand_dims
max = keras.ops.max
maximum = keras.ops.maximum
minimum = keras.ops.minimum
reshape = keras.ops.reshape
shape = keras.ops.shape
square = keras.ops.square
sum = keras.ops.sum
zeros_like = keras.ops.zeros_like


def divide_no_nan(x1: Tensor, x2: Tensor) -> Tensor:
    """Returns the quotient, or 0 where the divisor is 0."""
    return keras.ops.divide_no_nan(x1, x2)
