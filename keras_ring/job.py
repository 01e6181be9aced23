"""The life of a job of TensorFlow and Keras: `init()` and `shutdown()`."""

from __future__ import annotations

import os

from keras_ring.core import installs
from keras_ring.core.job import init, shutdown
from keras_ring.keras.startup import install
from keras_ring.protocol import auto_options

__all__ = ["init", "shutdown"]


def _begin_auto() -> None:
    """Starts `--auto` if no hook of the launcher has, such as under mpirun."""
    if auto_options.is_on(os.environ):
        import keras_ring.auto  # noqa: F401


install.register()
installs.on_start(_begin_auto)
