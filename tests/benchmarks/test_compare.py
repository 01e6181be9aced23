"""`compare.py` as it is typed, with little to do."""

import json

import pytest

from benchmarks.comparing.comparison import Comparison
from tests.benchmarks.command import run

pytestmark = pytest.mark.long("benchmarks")

QUICK = (
    *("-m", "benchmarks.compare", "--rounds=1", "--iterations=3", "--warmup=1"),
    *("--sections=ladder,sweep", "--max-bytes=4KiB", "--factor=1024"),
    *("--sweep-bytes=4KiB", "--sweep-tensors=1,4", "--yardstick-bytes=1MiB"),
)


def test_keras_ring_and_the_floor(tmp_path):
    done = run(
        *QUICK,
        "--systems=none,keras_ring,mpi,unfused",
        "--variant=unfused:KERAS_RING_FUSION_THRESHOLD=0",
        f"--out={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    comparison = Comparison.from_json((tmp_path / "results.json").read_text())
    assert comparison.failures == []
    assert comparison.systems == ["none", "keras_ring", "unfused"]
    cases = [case for part in comparison.sections.values() for case in part]
    assert len(cases) == 6
    for system in comparison.systems:
        for case in cases:
            record = comparison.find(system, case)
            assert len(record.times_us) == 3
            assert record.size == 2
    assert comparison.facts["ranks"] == 2
    assert all(value > 0 for value in comparison.yardsticks.values())
    assert "skipped mpi: no --mpi-python given" in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "keras_ring compared" in page

    # The same page from what was recorded.
    again = tmp_path / "again"
    replayed = run(
        "-m",
        "benchmarks.compare",
        f"--replay={tmp_path / 'results.json'}",
        f"--out={again}",
    )
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert json.loads((again / "results.json").read_text())


def test_keras_ring_that_fails_is_told(tmp_path):
    done = run(
        *(*QUICK, "--systems=keras_ring", "--deadline=1", f"--out={tmp_path}")
    )
    assert done.returncode == 1
    assert "FAILED keras_ring: took more than 1 s (0 of 6" in done.stdout
    assert (tmp_path / "report.html").exists()
