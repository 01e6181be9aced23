"""Programs of one process that `--auto` trains on ranks."""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"

from tests.backends.auto_ranks import *  # noqa: F403
