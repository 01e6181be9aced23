"""Fixtures of the tests of Keras in one process."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import pytest

from tests.keras.equal_ranks import EqualRanks


@pytest.fixture
def ring(monkeypatch):
    """A job of two equal ranks, of which this process is rank 0."""
    ranks = EqualRanks()
    for module, name, stand_in in ranks.stand_ins():
        monkeypatch.setattr(module, name, stand_in)
    return ranks


@pytest.fixture(autouse=True)
def fresh_keras():
    """Starts each test with the same names, seeds and policy."""
    # To collect what was before takes a quarter of a second.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")
