"""The framework that Keras computes with.

Nothing above asks which one it is.
"""

from __future__ import annotations

from keras_ring.core import import_hooks
from keras_ring.keras.backends.interface import Backend

backend: Backend
with import_hooks.frameworks.held():
    from keras_ring.keras.backends.which import framework

    if framework() == "torch":
        from keras_ring.keras.backends import torch_backend

        backend = torch_backend
    elif framework() == "jax":
        from keras_ring.keras.backends import jax_backend

        backend = jax_backend
    else:
        from keras_ring.keras.backends import tensorflow_backend

        backend = tensorflow_backend

__all__ = ["backend"]
