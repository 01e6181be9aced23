"""The hooks of `--auto` into a program of TensorFlow."""

from __future__ import annotations

from keras_ring.core import topology
from keras_ring.tensorflow import global_random
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
from keras_ring.unchanged.settings import AutoSettings


def install(settings: AutoSettings) -> None:
    """Installs all of them. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
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


def after_seed() -> None:
    """Seeds what TensorFlow draws by itself, once the program has a seed.

    Its devices are not set up by it, so that the program still can configure
    them. Operations with a seed of their own draw the same as in one process.
    """
    global_random.seed_by_default()
