"""The example of JAX runs as a user starts it."""

import pytest

from tests.harness import examples
from tests.tiers import few


@pytest.mark.parametrize("num_ranks", few([2, 1, 4], "examples", 1))
def test_jax_digits(num_ranks):
    accuracy, _ = examples.last_lines(num_ranks, "jax_digits.py", "--epochs=6")
    assert accuracy > 0.9
