"""Finds the native libraries, and loads the one that needs no framework."""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import warnings
from pathlib import Path
from typing import Any

from keras_ring import errors
from keras_ring.protocol import tensorflow_package

_PACKAGE = Path(__file__).resolve().parents[1]
_OPS_PATTERN = re.compile(r"libkeras_ring_tf_(\d+)_(\d+)\.so")
_REBUILD = (
    "Rebuild keras_ring for it, with that TensorFlow installed: "
    "`pip install --no-build-isolation --force-reinstall --no-deps` and the "
    "path of keras_ring's sources (build requirements: cmake, ninja, pybind11, "
    "setuptools)."
)


@functools.cache
def core() -> Any:
    """Returns the pybind11 module `keras_ring._core`.

    Raises:
        BuildMismatchError: If the package was not built, or was built for
            another Python.
    """
    try:
        return importlib.import_module("keras_ring._core")
    except ImportError as error:
        raise errors.BuildMismatchError(
            f"keras_ring's native module cannot be loaded ({error}). It is not "
            f"built, or was built for another Python. {_REBUILD}"
        ) from error


def library_path(kind: str, version: str) -> Path:
    """Returns the path of a library for a framework, whether it exists or not.

    Args:
        kind: String: `"tf"`, `"xla"` or `"arena"` for TensorFlow, `"torch"`,
            or `"jax"`.
        version: String, the version of the framework, such as `"2.21.0"`.
    """
    suffix = _minor(version).replace(".", "_")
    return _PACKAGE / f"libkeras_ring_{kind}_{suffix}.so"


def install_arena(kind: str, version: str, job_size: int) -> str:
    """Puts a framework's tensors into shared memory from now on.

    Args:
        kind: String: `"arena"` for TensorFlow, `"torch"`, or `"jax"`.
        version: String, the version of the imported framework.
        job_size: Integer, the number of ranks.

    Returns:
        String, the reason why it is not possible, or `""`.

    Raises:
        OSError: If the library of the allocator cannot be loaded.
    """
    core()
    # That of TensorFlow has no ops and is not loaded by `tf.load_op_library`,
    # because this runs at the end of TensorFlow's own import.
    path = library_path(kind, version)
    install = ctypes.CDLL(str(path)).KerasRingInstallArena
    install.restype = ctypes.c_char_p
    install.argtypes = [ctypes.c_int]
    why = install(job_size)
    return why.decode() if why else ""


def xla_calls(version: str) -> dict[str, Any]:
    """Returns the handlers of the calls of programs that JAX compiles.

    Args:
        version: String, the version of the installed jaxlib.

    Returns:
        A dictionary: functions of C, by the names of the calls.

    Raises:
        BuildMismatchError: If they were not built for this version.
    """
    core()
    path = library_path("jax", version)
    if not path.exists():
        pattern = re.compile(r"libkeras_ring_jax_(\d+)_(\d+)\.so")
        found = [pattern.fullmatch(path.name) for path in _libraries()]
        built = " and ".join(f"{m[1]}.{m[2]}" for m in found if m)
        raise errors.BuildMismatchError(
            f"keras_ring was built for jaxlib {built or 'none at all'}, but "
            f"this is jaxlib {version}, and the calls of compiled programs may "
            "differ from one minor version to the next. Rebuild keras_ring for "
            "it: `pip install --force-reinstall --no-deps` and the path of "
            "keras_ring's sources, with that jaxlib installed."
        )
    library = ctypes.CDLL(str(path))
    return {
        "keras_ring_start": library.KerasRingXlaStart,
        "keras_ring_done": library.KerasRingXlaDone,
    }


def mismatch_with(version: str) -> str:
    """Returns why the ops do not fit this TensorFlow version, or `""`."""
    built = built_for()
    if _minor(version) in built:
        return ""
    names = " and ".join(built) or "no TensorFlow at all"
    return (
        f"keras_ring was built for TensorFlow {names}, but this is TensorFlow "
        f"{version}. TensorFlow's C++ interface differs from one minor version "
        f"to the next. {_REBUILD}"
    )


def without_tensorflow(error: ModuleNotFoundError) -> Exception:
    """Returns the error to raise for a missing module.

    If the module is TensorFlow, the error says which versions to install.
    """
    return tensorflow_package.told_missing(
        error, " or ".join(built_for()) or "2.15 to 2.21"
    )


def warn_of_mismatch() -> None:
    """Warns if the installed TensorFlow is not one that ops were built for.

    It reads the installed version without importing TensorFlow, so that it
    costs little. It is only a warning, because `keras-ring check` must still
    start; the first use of an op raises an error.
    """
    version = tensorflow_package.installed_version()
    if version is None:
        return  # said on first use
    mismatch = mismatch_with(version)
    if mismatch:
        warnings.warn(mismatch, RuntimeWarning, stacklevel=3)


def built_for() -> list[str]:
    """Returns the TensorFlow minor versions of the ops, such as `"2.21"`."""
    matches = [_OPS_PATTERN.fullmatch(path.name) for path in _libraries()]
    return [f"{m[1]}.{m[2]}" for m in matches if m is not None]


def build_info() -> dict[str, str | list[str]]:
    """Returns facts of the build, for `keras-ring check`.

    Returns:
        A dictionary: `tf_version_built` (a list of minor versions), `compiler`,
        `libraries` (names of files) and `cpu_level` (the vector instructions
        that the kernels use on this processor: "baseline", "avx2" or "avx512").
    """
    return {
        "tf_version_built": built_for(),
        "compiler": core().compiler,
        "libraries": [path.name for path in _libraries()],
        "cpu_level": core().cpu_level,
    }


def _libraries() -> list[Path]:
    return sorted(_PACKAGE.glob("*.so"))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
