"""Starts the training of a program for one process on all ranks."""

from __future__ import annotations

import os
import threading

from keras_ring.core import job, shared_seed, topology
from keras_ring.core.notices import say
from keras_ring.keras.backends.which import keras
from keras_ring.keras.startup import install
from keras_ring.tensorflow import global_random
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
    if topology.size() == 1 and not settings.explain:
        return
    _install(settings)
    _share_seed()


def _install(settings: AutoSettings) -> None:
    from keras_ring.unchanged import (
        batches,
        cache_files,
        custom_steps,
        devices,
        ending,
        files,
        once,
        paths,
        refusals,
        results,
        single_batches,
        tensorflow_files,
        trackers,
        training,
        whole_functions,
    )

    devices.share()
    trackers.mute(topology.rank())
    batches.install(settings)
    results.install()
    training.install(settings)
    whole_functions.install()
    custom_steps.install(settings)
    single_batches.install(settings)
    once.install(settings)
    files.install()
    cache_files.install()
    paths.install()
    tensorflow_files.install()
    refusals.install()
    ending.install()


def _share_seed() -> None:
    """Makes all ranks draw the same numbers, if the program sets no seed.

    This is for numbers outside of models, in which each rank draws its own.
    The devices of TensorFlow are not set up by it, so that the program still
    can configure them.
    """
    keras.utils.set_random_seed(shared_seed.get())
    # So operations with a seed of their own draw the same as in one process.
    global_random.seed_by_default()
    say(
        f"{topology.size()} ranks begin with the weights of rank 0, read the "
        "same data, and draw random numbers of their own in layers alone"
    )
