"""The Keras of the program, 2 or 3, and the differences between them.

When TensorFlow 2.15 and `tf_keras` are no longer supported, `keras2`,
`keras2_variables` and this choice can be removed.
"""

from __future__ import annotations

from keras_ring.core import import_hooks
from keras_ring.keras.lanes.lane import Lane

compat: Lane
with import_hooks.frameworks.held():
    from keras_ring.keras.backends.which import is_keras2, keras

    if is_keras2():
        from keras_ring.keras.lanes import keras2

        compat = keras2
    else:
        from keras_ring.keras.lanes import keras3

        compat = keras3

__all__ = ["compat", "keras"]
