"""The Keras that this program uses, and the framework that it computes with.

With TensorFlow it is what TensorFlow calls `tf.keras`: Keras 3 from TensorFlow
2.16 on and Keras 2 before, or `tf_keras` if the program asks TensorFlow for it
by `TF_USE_LEGACY_KERAS=1`. Everything follows this choice but the optimizers,
which may be of either Keras.

Importing this module fails if keras_ring cannot train on that framework.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from keras_ring import errors


def _name() -> str:
    # The variable and the rule are TensorFlow's own.
    wanted = os.environ.get("TF_USE_LEGACY_KERAS", "").lower()
    return "tf_keras" if wanted in ("1", "true") else "keras"


FRAMEWORKS = ("tensorflow", "torch", "jax")

keras: Any = importlib.import_module(_name())


def is_keras2() -> bool:
    """Returns whether the Keras of the program is Keras 2."""
    return bool(keras.__version__.startswith("2."))


def keras2_families() -> list[ModuleType]:
    """Returns the modules of Keras 2 that the program has imported."""
    modules: list[Any] = [
        sys.modules.get(name) for name in ("keras", "tf_keras")
    ]
    return [
        module
        for module in modules
        if getattr(module, "__version__", "").startswith("2.")
    ]


def framework() -> str:
    """Returns the name of the framework, as `keras.backend.backend` does."""
    return str(keras.backend.backend())


def _require_supported() -> None:
    if framework() not in FRAMEWORKS:
        raise errors.ConfigurationError(
            f"Keras runs on {framework()!r} here (KERAS_BACKEND, or "
            "keras.json), and keras_ring trains Keras models on "
            f"{', '.join(FRAMEWORKS[:-1])} and {FRAMEWORKS[-1]} alone: set "
            "KERAS_BACKEND to one of them before the program imports Keras. "
            "`keras_ring.core` works beside any backend."
        )


_require_supported()
