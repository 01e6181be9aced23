"""Facts about tensors and variables."""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import DType, Variable


def num_bytes(variable: Variable) -> int | None:
    """Returns the bytes of a variable, or `None` if its shape is not known."""
    elements = tf.TensorShape(variable.shape).num_elements()
    if elements is None:
        return None
    size: int = elements * tf.as_dtype(variable.dtype).size
    return size


def num_bytes_of_floating(dtype: DType) -> int:
    """Returns the bytes of a number of a dtype, 0 if it is not floating."""
    found = tf.as_dtype(dtype)
    return int(found.size) if found.is_floating else 0
