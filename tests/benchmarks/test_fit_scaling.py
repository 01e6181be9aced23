"""`fit_scaling.py` as it is typed, with little to do."""

import re

import pytest

from tests.benchmarks.command import run

pytestmark = pytest.mark.long("benchmarks")


def test_two_processes():
    done = run(
        *("-m", "benchmarks.fit_scaling", "-np=2", "--rounds=1", "--steps=2"),
        *("--epochs=1", "--width=4", "--batch=2"),
        deadline=200.0,
    )
    assert done.returncode == 0, done.stderr
    first, header, _, *rows = done.stdout.splitlines()
    assert first.startswith("2 processes on ")
    assert "efficiency" in header
    for name, row in zip(("residual", "dense"), rows, strict=False):
        cells = row.split()
        assert cells[0] == name
        assert all(float(cells[i]) > 0 for i in (2, 4, 6)), row
        assert re.fullmatch(r"-|\d+%", cells[7])


def test_a_process_that_fails_is_an_error():
    done = run(
        *(
            "-m",
            "benchmarks.fit_scaling",
            "-np=1",
            "--rounds=1",
            "--models=dense",
        ),
        "--deadline=1",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: dense: took more than 1 s"
