"""Hooks into the batches, steps and results of the program's Keras.

`steps` is the module for the Keras of the program. It depends on more internals
of Keras than `compat`, so it is imported only in programs that train by
`--auto`.
"""

from __future__ import annotations

from typing import Any

from keras_ring.keras.lanes.which import is_keras2

steps: Any
if is_keras2():
    from keras_ring.keras.lanes import keras2_steps as steps
else:
    from keras_ring.keras.lanes import keras3_steps as steps

__all__ = ["steps"]
