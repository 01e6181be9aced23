"""Facts about tensors and variables."""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Variable


def num_bytes(variable: Variable) -> int | None:
    """Returns the bytes of a variable, or `None` if its shape is not known."""
    elements = tf.TensorShape(variable.shape).num_elements()
    if elements is None:
        return None
    size: int = elements * tf.as_dtype(variable.dtype).size
    return size
