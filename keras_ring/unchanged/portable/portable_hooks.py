"""The hooks of `--auto` into a program of Keras on any framework."""

from __future__ import annotations

from keras_ring.core import topology
from keras_ring.keras.startup import install as startup
from keras_ring.unchanged import ending, files, once, paths, trackers
from keras_ring.unchanged.portable import (
    all_rows,
    parts,
    refusals,
    results,
    same_batches,
    single_batches,
    training,
)
from keras_ring.unchanged.settings import AutoSettings


def install(settings: AutoSettings) -> None:
    """Installs all of them. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.

    Raises:
        AutoError: If a setting is for TensorFlow alone.
    """
    refusals.check_settings(settings)
    # `--auto` begins within the import of Keras, at its end: nothing else will
    # tell that it is complete.
    startup.make_changes()
    trackers.mute(topology.rank())
    parts.install()
    training.install(settings)
    all_rows.install()
    same_batches.install()
    results.install()
    single_batches.install(settings)
    refusals.install()
    once.install(settings)
    files.install()
    paths.install()
    ending.install()


def after_seed() -> None:
    """Does nothing: Keras has seeded all that the framework draws."""
