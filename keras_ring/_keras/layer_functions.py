"""What layers of Keras compute that may go by other rows of a batch."""

from __future__ import annotations

from typing import Any

from keras_ring._keras.which import keras
from keras_ring._typing import Layer

# Of those that see rows of a batch: others see weights.
_NAMES = ("activation", "recurrent_activation", "activity_regularizer")
_PACKAGES = (keras.__name__, "keras", "tensorflow")


def are_known(layer: Layer) -> bool:
    """Whether a layer of Keras computes each row by itself, for sure.

    Functions of Keras and TensorFlow do. One of the program's own may go by all
    rows of a batch, as a regularizer of mean activations does. And text is made
    as long as the longest row of a batch, which layers without a mask see.
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
