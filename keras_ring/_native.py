"""Finds and loads the native libraries, once. Nothing else loads them."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from keras_ring import errors

_PACKAGE = Path(__file__).resolve().parent
_OPS_PATTERN = re.compile(r"libkeras_ring_tf_(\d+)_(\d+)\.so")
_REBUILD = (
    "Rebuild keras_ring for it, with that TensorFlow installed: "
    "`pip install --no-build-isolation --force-reinstall --no-deps` and the "
    "path of keras_ring's sources (build requirements: cmake, ninja, pybind11, "
    "setuptools)."
)


@functools.cache
def core() -> Any:
    """The pybind11 module `keras_ring._core`.

    Raises:
        BuildMismatchError: If the package was never built, or for another
            Python.
    """
    try:
        return importlib.import_module("keras_ring._core")
    except ImportError as error:
        raise errors.BuildMismatchError(
            f"keras_ring's native module cannot be loaded ({error}). It is not "
            f"built, or was built for another Python. {_REBUILD}"
        ) from error


@functools.cache
def tf_ops() -> ModuleType:
    """The module of the TensorFlow ops, for the TensorFlow that runs.

    Raises:
        BuildMismatchError: If the ops were built for another minor version.
    """
    import tensorflow as tf

    found = _minor(tf.__version__)
    built = built_for()
    if found not in built:
        names = " and ".join(built) or "no TensorFlow at all"
        raise errors.BuildMismatchError(
            f"keras_ring was built for TensorFlow {names}, but this is "
            f"TensorFlow {tf.__version__}. TensorFlow's C++ interface differs "
            f"from one minor version to the next. {_REBUILD}"
        )
    core()  # so that both use one libkeras_ring.so, loaded from here
    path = _PACKAGE / f"libkeras_ring_tf_{found.replace('.', '_')}.so"
    library: ModuleType = tf.load_op_library(str(path))
    return library


def built_for() -> list[str]:
    """The TensorFlow minor versions that ops were built for, as "2.21"."""
    matches = [_OPS_PATTERN.fullmatch(path.name) for path in _libraries()]
    return [f"{m[1]}.{m[2]}" for m in matches if m is not None]


def build_info() -> dict[str, Any]:
    """What was built, for `keras-ring check`.

    Returns:
        A dictionary: `tf_version_built` (a list of minor versions), `compiler`
        and `libraries` (names of files).
    """
    return {
        "tf_version_built": built_for(),
        "compiler": core().compiler,
        "libraries": [path.name for path in _libraries()],
    }


def _libraries() -> list[Path]:
    return sorted(_PACKAGE.glob("*.so"))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
