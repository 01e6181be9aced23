"""The framework that Keras computes with: TensorFlow.

Nothing above asks which one it is.
"""

from __future__ import annotations

from keras_ring.core import import_hooks
from keras_ring.keras.backends.interface import Backend

with import_hooks.frameworks.held():
    from keras_ring.keras.backends import tensorflow_backend

    backend: Backend = tensorflow_backend

__all__ = ["backend"]
