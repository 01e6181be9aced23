"""Detection of callbacks that read the results of single batches."""

from __future__ import annotations

from typing import Any

from keras_ring._typing import Callback
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import keras

_OF_TRAINING = ("on_train_batch_end", "on_batch_end")
_OF_TESTS = ("on_test_batch_begin", "on_test_batch_end")
# Callbacks of Keras, and the argument that makes them read each batch.
_BY_BATCHES = {"ModelCheckpoint": "save_freq", "TensorBoard": "update_freq"}


def looks_at_training(callback: Callback) -> bool:
    """Returns whether a callback reads the results of training batches.

    Args:
        callback: A callback of `fit`.
    """
    for name, argument in _BY_BATCHES.items():
        if type(callback) is getattr(keras.callbacks, name):
            return bool(getattr(callback, argument) != "epoch")
    return _has_own(callback, _OF_TRAINING)


def look_at_tests(callbacks: Any) -> bool:
    """Returns whether one of some callbacks observes evaluated batches.

    Args:
        callbacks: The callbacks that `evaluate` is given: one, several or a
            `CallbackList`.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    return any(
        _has_own(each, _OF_TESTS) for each in backend.flatten(callbacks or [])
    )


def _has_own(callback: Callback, methods: tuple[str, ...]) -> bool:
    if isinstance(callback, keras.callbacks.LambdaCallback):
        return any(name in vars(callback) for name in methods)
    return any(_is_own(getattr(type(callback), name, None)) for name in methods)


def _is_own(method: Any) -> bool:
    module = str(getattr(method, "__module__", ""))
    return module.split(".")[0] not in ("keras", "tf_keras", "keras_ring")
