"""`allocator.py` as it is typed, with little to do."""

import re

import pytest

from tests.benchmarks.command import run

pytestmark = pytest.mark.long("benchmarks")


def test_both_sides_are_measured():
    done = run(
        *("-m", "benchmarks.allocator", "--rounds=1", "--steps=2"),
        *("--models=dense", "--width=512", "--batch=2"),
        deadline=200.0,
    )
    assert done.returncode == 0, done.stderr
    first, header, _, *rows = done.stdout.splitlines()
    assert first == "1 rounds of 2 steps, one process"
    assert "resident MiB" in header
    own, arena, ratio = (re.split(r"\s{2,}", row.strip()) for row in rows)
    assert [own[1], arena[1], ratio[1]] == ["TensorFlow's", "arena", "ratio"]
    for column in (2, 3, 4):
        expected = float(arena[column]) / float(own[column])
        assert abs(float(ratio[column]) - expected) < 0.02 * expected
    assert 0 < float(own[3])


def test_a_process_that_fails_is_an_error():
    done = run(
        *("-m", "benchmarks.allocator", "--rounds=1", "--models=dense"),
        "--deadline=0.1",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: dense: took more than 0.1 s"
