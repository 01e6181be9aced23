"""benchmarks/torch_step.py, which docs/performance.md names, runs."""

import re
import sys

from tests.documented import ROOT
from tests.harness import examples


def test_torch_step():
    assert "torch_step.py" in (ROOT / "docs/performance.md").read_text()
    finished = examples.run(
        *("-m", "keras_ring", "run", "-np", "2", "--"),
        *(sys.executable, ROOT / "benchmarks/torch_step.py"),
        *("--rounds=1", "--backward=0"),
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"^\[0\] +0( +[\d.]+){6}$", finished.stdout, re.M)
