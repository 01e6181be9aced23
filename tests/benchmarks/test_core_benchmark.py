"""The benchmarks in C++ run; `make test-cpp` has built them."""

import subprocess
import sys

import pytest

from tests.benchmarks.command import ROOT

CORE = ROOT / "build/core/benchmarks/core_benchmark"

pytestmark = pytest.mark.skipif(
    not CORE.exists(), reason="`make test-cpp` has not built it"
)


def test_the_core_alone():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            *(str(CORE), "20", "4", "65536"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[1] for row in rows if row[0] == "[0]"] == ["4", "65536"], rows
