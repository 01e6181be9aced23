"""Which Keras this program uses: what TensorFlow calls `tf.keras`.

That is Keras 3 from TensorFlow 2.16 on and Keras 2 before, or `tf_keras` where
the program asks TensorFlow for it by `TF_USE_LEGACY_KERAS=1`. Everything but
the optimizers, which may be of either Keras, goes by this.

Whoever imports this needs a Keras that computes with TensorFlow.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from keras_ring import errors


def _name() -> str:
    # TensorFlow's own variable, and its own rule.
    wanted = os.environ.get("TF_USE_LEGACY_KERAS", "").lower()
    return "tf_keras" if wanted in ("1", "true") else "keras"


keras: Any = importlib.import_module(_name())


def is_keras2() -> bool:
    """Whether it is Keras 2."""
    return bool(keras.__version__.startswith("2."))


def _require_tensorflow() -> None:
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise errors.ConfigurationError(
            f"Keras runs on {backend!r} here (KERAS_BACKEND, or keras.json), "
            "and keras_ring trains Keras models on TensorFlow alone: set "
            "KERAS_BACKEND=tensorflow before the program imports Keras. "
            "`keras_ring.core` works beside any backend."
        )


_require_tensorflow()
