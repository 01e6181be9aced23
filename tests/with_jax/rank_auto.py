"""Programs of one process that `--auto` trains on ranks."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax

from tests.backends.auto_ranks import *  # noqa: F403

jax.config.update("jax_enable_x64", True)
