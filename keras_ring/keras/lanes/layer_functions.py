"""Tells which layers of Keras may use other rows of a batch for a row."""

from __future__ import annotations

from typing import Any

from keras_ring._typing import Layer
from keras_ring.keras.backends.which import keras

# Functions that a layer applies to rows of a batch. Others apply to weights.
_NAMES = ("activation", "recurrent_activation", "activity_regularizer")
_PACKAGES = (keras.__name__, "keras", "tensorflow")


def are_known(layer: Layer) -> bool:
    """Returns whether a layer of Keras surely computes each row by itself.

    Functions of Keras and TensorFlow do. A function of the program's own may
    use all rows of a batch, as a regularizer of mean activations does. And text
    is padded to the longest row of a batch, which layers without a mask see.
    """
    if _pads_to_longest(layer):
        return False
    given = (getattr(layer, name, None) for name in _NAMES)
    return all(each is None or _package(each) in _PACKAGES for each in given)


def _pads_to_longest(layer: Layer) -> bool:
    return (
        isinstance(layer, keras.layers.TextVectorization)
        and layer._output_mode == "int"
        and layer._output_sequence_length is None
        and not layer._ragged
    )


def _package(function: Any) -> str:
    if not hasattr(function, "__name__"):
        function = type(function)
    return str(getattr(function, "__module__", "")).split(".")[0]
