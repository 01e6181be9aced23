"""The examples of PyTorch run as a user starts them."""

import re
import sys

import numpy as np
import pytest

from tests.harness import examples
from tests.tiers import few


@pytest.mark.parametrize("num_ranks", few([2, 1, 4], "examples", 1))
def test_torch_digits(num_ranks):
    accuracy, _ = examples.last_lines(
        num_ranks, "torch_digits.py", "--epochs=6"
    )
    assert accuracy > 0.9


# The same programs train on TensorFlow, in the lane of all other tests.
@pytest.mark.parametrize(
    "example", few(["keras_digits", "transfer_learning"], "examples", 1)
)
def test_examples_of_keras(example, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    accuracy, _ = examples.last_lines(2, f"{example}.py", "--epochs=4")
    assert accuracy > 0.9


def test_keras_any_backend(tmp_path, monkeypatch):
    """A file of one training is the beginning of the next."""
    examples.check_any_backend("torch", tmp_path, monkeypatch)


RESNET = re.compile(
    r"([\d.]+) million parameters, loss [\d.]+: [\d.]+ images/s on each of "
    r"(\d) ranks, [\d.]+ together"
)
SMALL = ("--blocks=1,1", "--width=8", "--batch_size=1", "--steps=2")


def resnet(num_ranks, *words):
    launcher = ("-m", "keras_ring", "run", "-np", num_ranks, "--")
    script = examples.EXAMPLES / "torch_resnet.py"
    return examples.run(*launcher, sys.executable, script, *words)


def test_torch_resnet():
    done = resnet(2, "--synthetic", *SMALL, "--size=32", "--bf16")
    assert done.returncode == 0, done.stdout + done.stderr
    assert RESNET.search(done.stdout)[2] == "2"


def test_torch_resnet_of_a_file(tmp_path):
    """The model is the whole one, whose parameters are counted."""
    random = np.random.default_rng(1)
    path = tmp_path / "data.npz"
    images = random.integers(0, 255, (3, 32, 32, 3), dtype=np.uint8)
    np.savez(path, x=images, y=np.arange(3))
    words = (f"--images={path}", "--batch_size=2", "--steps=1", "--warmup=0")
    done = resnet(1, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert RESNET.search(done.stdout)[1] == "25.6"
    done = resnet(2, *SMALL, words[0], "--batch_size=3")
    assert done.returncode != 0
    assert "3 images are too few" in done.stdout + done.stderr
    done = resnet(1, *words, "--synthetic")
    assert done.returncode != 0
    assert "Give --synthetic or --images." in done.stdout + done.stderr
