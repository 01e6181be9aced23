"""benchmarks/jax_step.py, which docs/performance.md names, runs."""

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
