"""Keras 2 or Keras 3: which it is, and what is different in it.

Keras 2 can go from here when TensorFlow 2.15 and `tf_keras` are no longer
supported: `keras2`, `keras2_variables` and this with them.
"""

from __future__ import annotations

from typing import Any

from keras_ring._keras.which import is_keras2, keras

compat: Any
if is_keras2():
    from keras_ring._keras import keras2 as compat
else:
    from keras_ring._keras import keras3 as compat

__all__ = ["compat", "keras"]
