"""Stateful layers, which continue from the batch before.

Such a layer keeps a state for each row of a batch, and is made for the number
of rows of a whole batch.
"""

from __future__ import annotations

from keras_ring._typing import Model
from keras_ring.errors import AutoError
from keras_ring.unchanged import script


def stateful_layer(model: Model) -> str | None:
    """Returns the name of a stateful layer, or `None` if there is none.

    Args:
        model: A `keras.Model`.
    """
    for layer in model._flatten_layers(include_self=False):
        if getattr(layer, "stateful", False):
            name: str = layer.name
            return name
    return None


def refuse(model: Model) -> None:
    """Refuses to train a model with a stateful layer on parts of batches.

    Args:
        model: A `keras.Model`.

    Raises:
        AutoError: If it has a stateful layer.
    """
    name = stateful_layer(model)
    if name is None:
        return
    raise AutoError(
        f"{script.line()} trains model {model.name!r}, whose layer {name!r} is "
        "`stateful`: it keeps a state for each row of a batch, and is made for "
        "all of them, of which a rank has a part. Leave `stateful=True` and "
        "`batch_shape` away, or make the model for the rows of a rank and "
        "train it by explicit lines (docs/keras_guide.md)."
    )
