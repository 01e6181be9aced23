"""Loads the native libraries that were built for TensorFlow, once."""

from __future__ import annotations

import functools
from types import ModuleType

import tensorflow as tf

from keras_ring import errors
from keras_ring.core import native


@functools.cache
def ops() -> ModuleType:
    """Returns the module of the ops for the imported TensorFlow.

    Raises:
        BuildMismatchError: If the ops were built for another minor version.
    """
    mismatch = native.mismatch_with(tf.__version__)
    if mismatch:
        raise errors.BuildMismatchError(mismatch)
    native.core()  # so that both use one libkeras_ring.so, loaded from here
    path = native.library_path("tf", tf.__version__)
    library: ModuleType = tf.load_op_library(str(path))
    return library


@functools.cache
def xla_ops() -> ModuleType:
    """Returns the module of the ops for functions with `jit_compile=True`.

    Raises:
        BuildMismatchError: If the ops were not built, or cannot be loaded.
    """
    ops()
    path = native.library_path("xla", tf.__version__)
    try:
        library: ModuleType = tf.load_op_library(str(path))
    except (OSError, tf.errors.OpError) as error:
        raise errors.BuildMismatchError(
            "keras_ring's collectives are not available in functions with "
            f"`jit_compile=True`: {path.name} cannot be loaded ({error}). Call "
            "them without it, or use a TensorFlow for which keras_ring has it "
            "(docs/architecture.md, XLA)."
        ) from error
    return library


def xla_built() -> bool:
    """Returns whether collectives work in functions with `jit_compile=True`.

    It may be called before `init()`.
    """
    return native.library_path("xla", tf.__version__).exists()
