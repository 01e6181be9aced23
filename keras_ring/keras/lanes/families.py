"""The families of optimizers, of which a program may use several.

Beside those of its Keras they are those of Keras 2, in a program whose Keras is
version 3, and those of TensorFlow 1.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from keras_ring._typing import Optimizer
from keras_ring.keras.backends.which import keras2_families


def is_v1(optimizer: Optimizer) -> bool:
    """Returns whether an optimizer is one of `tf.compat.v1.train`."""
    tensorflow: Any = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(
        optimizer, tensorflow.compat.v1.train.Optimizer
    )


def keras2_of(optimizer: Optimizer) -> ModuleType | None:
    """Returns the module of Keras 2 of an optimizer, or `None`."""
    for keras2 in keras2_families():
        if isinstance(
            optimizer,
            (
                keras2.optimizers.Optimizer,
                keras2.optimizers.legacy.Optimizer,
                keras2.mixed_precision.LossScaleOptimizer,
            ),
        ):
            return keras2
    return None
