"""Datasets of TensorFlow, which Keras reads with any framework."""

from __future__ import annotations

import sys
from typing import Any


def is_dataset(value: object) -> bool:
    """Returns whether an object is a `tf.data.Dataset`."""
    tensorflow: Any = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(value, tensorflow.data.Dataset)
