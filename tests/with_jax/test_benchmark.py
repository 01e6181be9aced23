"""The benchmarks of JAX that docs/performance.md names run."""

import re
import sys

from tests.documented import ROOT
from tests.harness import examples


def test_jax_step():
    assert "jax_step.py" in (ROOT / "docs/performance.md").read_text()
    finished = examples.run(
        *("-m", "keras_ring", "run", "-np", "2", "--"),
        *(sys.executable, ROOT / "benchmarks/jax_step.py", "--rounds=1"),
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for way in ("none", "ours", "each", "gloo"):
        assert re.search(rf"^\[0\] {way} +[\d.]+ ms ", finished.stdout, re.M)


def test_keras_jax_fit():
    assert "keras_jax_fit.py" in (ROOT / "docs/performance.md").read_text()
    finished = examples.run(
        *("-m", "keras_ring", "run", "-np", "2", "--", sys.executable),
        *(ROOT / "benchmarks/keras_jax_fit.py", "--rounds=1", "--steps=2"),
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for model in ("dense", "convolutions"):
        for way in ("none", "ours", "gloo"):
            line = rf"^\[0\] {model} +{way} +[\d.]+ ms "
            assert re.search(line, finished.stdout, re.M)
