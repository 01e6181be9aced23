"""Registration of the classes that saved models name.

Keras finds a class of a saved model only if the class is registered. So
`import keras_ring` suffices to load a model that contains one of these.
"""

from __future__ import annotations

import importlib
import sys

from keras_ring import errors
from keras_ring.core import import_hooks

_MODULES = (
    "keras_ring.keras.optimizer.schedules",
    "keras_ring.keras.model.sync_batch_normalization",
)


def register() -> None:
    """Registers the classes as soon as the program has imported Keras."""
    import_hooks.frameworks.when_idle(_register)


def _register() -> None:
    if "keras" not in sys.modules and "tf_keras" not in sys.modules:
        return
    try:
        importlib.import_module("keras_ring.keras.backends.which")
    except errors.ConfigurationError:
        # Keras computes without TensorFlow, so no such model can be loaded.
        return
    for module in _MODULES:
        importlib.import_module(module)
