"""The example of MXNet runs as a user starts it."""

import pytest

from tests.harness import examples
from tests.tiers import few


@pytest.mark.parametrize("num_ranks", few([2, 1, 4], "examples", 1))
def test_mxnet_digits(num_ranks):
    accuracy, _ = examples.last_lines(
        num_ranks, "mxnet_digits.py", "--epochs=6"
    )
    assert accuracy > 0.9


def test_a_job_can_run():
    finished = examples.run("-m", "keras_ring", "check")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "a job can run here" in finished.stdout
    assert "MXNet                 1.9.1" in finished.stdout
