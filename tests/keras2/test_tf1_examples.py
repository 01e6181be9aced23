"""The examples of TensorFlow 1 programs."""

import pytest
from lane import HAS_ESTIMATOR

from tests.harness.examples import last_lines

pytestmark = pytest.mark.timeout(500)


def test_monitored_session(tmp_path):
    """All of it at once, and in two parts of which the second goes on."""
    directory = f"--directory={tmp_path / 'checkpoints'}"
    last_lines(2, "monitored_session.py", directory, "--steps=200")
    accuracy, _ = last_lines(2, "monitored_session.py", directory)
    assert accuracy >= 0.95
    assert (tmp_path / "checkpoints" / "model.ckpt-400.index").exists()


@pytest.mark.skipif(
    not HAS_ESTIMATOR, reason="this TensorFlow has no tf.estimator"
)
def test_estimator():
    accuracy, _ = last_lines(2, "estimator_digits.py")
    assert accuracy >= 0.95
