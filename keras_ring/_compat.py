"""Keras 2 or Keras 3: which it is, and what is different in it.

Keras 2 can go from here when TensorFlow 2.15 and `tf_keras` are no longer
supported: `_which_keras`, `_keras2` and this module with it.
"""

from __future__ import annotations

from typing import Any

from keras_ring._which_keras import is_keras2, keras

own: Any
if is_keras2():
    from keras_ring import _keras2 as own
else:
    from keras_ring import _keras3 as own

__all__ = ["keras", "own"]
