"""`keras-ring check` where there is JAX and no TensorFlow."""

from tests.harness import examples


def test_a_job_can_run():
    finished = examples.run("-m", "keras_ring", "check")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "a job can run here" in finished.stdout
    assert "TensorFlow            missing" in finished.stdout
