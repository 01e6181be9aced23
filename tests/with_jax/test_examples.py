"""The examples of JAX run as a user starts them."""

import pytest

from tests.harness import examples
from tests.tiers import few


@pytest.mark.parametrize("num_ranks", few([2, 1, 4], "examples", 1))
def test_jax_digits(num_ranks):
    accuracy, _ = examples.last_lines(num_ranks, "jax_digits.py", "--epochs=6")
    assert accuracy > 0.9


# The same programs train on TensorFlow, in the lane of all other tests.
@pytest.mark.parametrize(
    "example", few(["keras_digits", "transfer_learning"], "examples", 1)
)
def test_examples_of_keras(example, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    accuracy, _ = examples.last_lines(2, f"{example}.py", "--epochs=4")
    assert accuracy > 0.9


def test_keras_any_backend(tmp_path, monkeypatch):
    """A file of one training is the beginning of the next."""
    examples.check_any_backend("jax", tmp_path, monkeypatch)
