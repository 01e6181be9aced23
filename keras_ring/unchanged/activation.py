"""Starts the training of a program for one process on all ranks."""

from __future__ import annotations

import os
import threading
from typing import Any

from keras_ring.core import job, shared_seed, topology
from keras_ring.core.notices import say
from keras_ring.errors import AutoError
from keras_ring.keras.backends.which import framework, keras
from keras_ring.keras.startup import install
from keras_ring.unchanged import settings as auto_settings
from keras_ring.unchanged.settings import AutoSettings

_lock = threading.Lock()
_is_active = False


def activate(settings: AutoSettings | None = None) -> None:
    """Makes this program, unchanged, train on all ranks of its job.

    Calling it once is enough. Keras must not have trained anything yet.

    Args:
        settings: An `AutoSettings`. Defaults to that of the environment.

    Raises:
        AutoError: If a setting is for another framework, or if the job is
            elastic.
        ValueError: If a variable of the environment is not valid.
    """
    global _is_active
    with _lock:
        if _is_active:
            return
        _is_active = True
    if settings is None:
        settings = auto_settings.settings_of(os.environ) or AutoSettings()
    install.register()
    job.init()
    if topology.is_elastic():
        raise AutoError(
            "An elastic job may lose ranks, and a program that is trained "
            "unchanged divides its batches by their number at the start. Run "
            "it by `keras-ring run` without `--elastic`, `--min-np` and "
            "`--max-np`."
        )
    if topology.stays_alone() and not settings.explain:
        return
    _hooks().install(settings)
    share_seed()
    say(
        f"{topology.size()} ranks begin with the weights of rank 0, read the "
        "same data, and draw random numbers of their own in layers alone"
    )


def share_seed() -> None:
    """Seeds all that the program draws with the seed of rank 0.

    Ranks then draw numbers of their own in steps of models alone.
    """
    keras.utils.set_random_seed(shared_seed.get())
    _hooks().after_seed()


def _hooks() -> Any:
    """Returns the module of the hooks into the framework of the program."""
    if framework() == "tensorflow":
        from keras_ring.unchanged import tensorflow_hooks

        return tensorflow_hooks
    from keras_ring.unchanged.portable import portable_hooks

    return portable_hooks
