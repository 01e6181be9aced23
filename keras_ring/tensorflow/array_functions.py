"""Functions of TensorFlow by the names of `keras.ops`, for Keras 2 as well."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_ring._typing import Tensor

broadcast_to = tf.broadcast_to
cast = tf.cast
divide_no_nan = tf.math.divide_no_nan
expand_dims = tf.expand_dims
maximum = tf.maximum
minimum = tf.minimum
reshape = tf.reshape
square = tf.square
zeros_like = tf.zeros_like


def concatenate(tensors: list[Tensor], axis: int = -1) -> Tensor:
    """Returns tensors joined along an axis."""
    return tf.concat(tensors, axis)


def max(x: Tensor, axis: Any = None) -> Tensor:
    """Returns the largest element."""
    return tf.reduce_max(x, axis)


def shape(x: Tensor) -> Tensor:
    """Returns the shape, also if it is known only when the graph runs."""
    return tf.shape(x)


def sum(x: Tensor, axis: Any = None) -> Tensor:
    """Returns the sum of elements."""
    return tf.reduce_sum(x, axis)
