"""Where there is PyTorch and no TensorFlow: `keras-ring check`, a timeline."""

import pytest

from tests.harness import examples


@pytest.mark.parametrize("backend", ["torch", None])
def test_a_job_can_run(monkeypatch, backend):
    if backend is None:
        monkeypatch.delenv("KERAS_BACKEND", raising=False)
    else:
        monkeypatch.setenv("KERAS_BACKEND", backend)
    finished = examples.run("-m", "keras_ring", "check")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "a job can run here" in finished.stdout
    assert "TensorFlow            missing" in finished.stdout
    advice = (
        "advice: Keras cannot be imported (ModuleNotFoundError: No module named"
        " 'tensorflow'), which is its backend: for programs of Keras, set"
        " KERAS_BACKEND to one that is there, such as torch"
    )
    assert (advice in finished.stdout) == (backend is None)


def test_a_timeline_is_recorded(tmp_path):
    examples.check_timeline(tmp_path)
