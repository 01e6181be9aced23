"""The formats of tensors on the wire, for the framework of the program."""

from __future__ import annotations

import sys
from typing import Any

Compression: Any
if "keras" in sys.modules or "tensorflow" not in sys.modules:
    from keras_ring.keras.backends import backend

    Compression = backend.Compression
else:
    # A program without Keras, which it does not have to import.
    from keras_ring.tensorflow.compression import Compression

__all__ = ["Compression"]
