"""`autotune.py` as it is typed, with little to do."""

import json
import sys

import pytest

from tests.benchmarks.command import run

pytestmark = pytest.mark.long("benchmarks")


def test_compares_three_settings(tmp_path):
    log = tmp_path / "tuning.csv"
    done = run(
        *("-m", "keras_ring", "run", "-np", "2", "--"),
        *(sys.executable, "-m", "benchmarks.autotune", "--model=many_small"),
        *("--steps=1", "--samples=2", "--rounds=1", "--json", f"--log={log}"),
        deadline=250.0,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1].removeprefix("[0] "))
    assert [row["setting"] for row in rows] == [
        *("default", "autotune", "best of grid")
    ]
    assert rows[0]["of default"] == 1.0
    assert not rows[0]["changed"]
    assert all(row["MB/s"] > 0 for row in rows)
    assert log.read_text().splitlines()[-1].startswith("# ")
