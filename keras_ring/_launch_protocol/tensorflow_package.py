"""The package that TensorFlow comes in, which has several names.

keras_ring requires none of them, for whoever has one must not get another one
over it: they have the same files.
"""

import sys
from importlib import metadata

NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly")


def installed_version() -> str | None:
    """Returns the version that is installed, without importing it.

    Returns:
        None if there is none, under any of these names.
    """
    for name in NAMES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def told_missing(error: ModuleNotFoundError, built_for: str) -> Exception:
    """Says in words that TensorFlow is not there, if that is what is wrong.

    Args:
        error: What an import has raised.
        built_for: The TensorFlow that keras_ring was built for.

    Returns:
        What is to be raised in its place; the error itself if another module
        is missing.
    """
    if error.name != "tensorflow":
        return error
    return ModuleNotFoundError(
        "keras_ring needs TensorFlow, and there is none for "
        f"{sys.executable}: pip install tensorflow, or tensorflow-cpu, of "
        f"version {built_for}, for which keras_ring was built",
        name=error.name,
    )
