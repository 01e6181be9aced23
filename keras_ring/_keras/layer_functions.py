"""Functions that a program gives to layers of Keras."""

from __future__ import annotations

from typing import Any

from keras_ring._keras.which import keras
from keras_ring._typing import Layer

# Of those that see rows of a batch: others see weights.
_NAMES = ("activation", "recurrent_activation", "activity_regularizer")
_PACKAGES = (keras.__name__, "keras", "tensorflow")


def are_known(layer: Layer) -> bool:
    """Whether functions of a layer compute each row by itself, for sure.

    Those of Keras and TensorFlow do. One of the program's own may go by all
    rows of a batch, as a regularizer of mean activations does.
    """
    given = (getattr(layer, name, None) for name in _NAMES)
    return all(each is None or _package(each) in _PACKAGES for each in given)


def _package(function: Any) -> str:
    if not hasattr(function, "__name__"):
        function = type(function)
    return str(getattr(function, "__module__", "")).split(".")[0]
