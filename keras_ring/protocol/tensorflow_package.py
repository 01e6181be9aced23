"""The package of TensorFlow, which has several names.

keras_ring requires none of them. They contain the same files, so a second one
must not be installed over the first.
"""

import importlib.util
import sys
from importlib import metadata

NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly")


def installed_version() -> str | None:
    """Returns the version that is installed, without importing it.

    Returns:
        String, the version. `None` if no package of these names is installed.
    """
    for name in NAMES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def told_missing(error: ModuleNotFoundError, built_for: str) -> Exception:
    """Returns an error that says that TensorFlow is missing, if it is.

    Args:
        error: Exception that an import has raised.
        built_for: String, the TensorFlow versions that keras_ring was built
            for.

    Returns:
        The exception to raise instead. If another module is missing, `error`
        itself.
    """
    if (error.name or "").partition(".")[0] != "tensorflow":
        return error
    instead = ""
    if importlib.util.find_spec("torch") is not None:
        instead = (
            "; or, since there is PyTorch, set KERAS_BACKEND=torch to train "
            "models of Keras, and take collectives from keras_ring.torch"
        )
    elif importlib.util.find_spec("jax") is not None:
        instead = (
            "; or, since there is JAX, set KERAS_BACKEND=jax to train models "
            "of Keras, and take collectives from keras_ring.jax"
        )
    return ModuleNotFoundError(
        "keras_ring needs TensorFlow, and there is none for "
        f"{sys.executable}: pip install tensorflow, or tensorflow-cpu, of "
        f"version {built_for}, for which keras_ring was built{instead}",
        name=error.name,
    )
