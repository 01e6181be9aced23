"""Where Keras reads batches, makes steps of them, and results of those.

`steps` is the module for the Keras of the program. It reaches into Keras deeper
than `compat`, so it is imported where a program trains by `--auto` alone.
"""

from __future__ import annotations

from typing import Any

from keras_ring._keras.which import is_keras2

steps: Any
if is_keras2():
    from keras_ring._keras import keras2_steps as steps
else:
    from keras_ring._keras import keras3_steps as steps

__all__ = ["steps"]
