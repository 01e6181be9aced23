"""Which tests each tier has, and what becomes of those that have no time."""

import re
import subprocess
import sys

import pytest

from tests.tiers.changes import ROOT
from tests.tiers.environments import ENVIRONMENTS

# One test, which is longer with its part.
LONGER = "tests/launcher/test_kills.py"
# Tests of which some are of the long tier.
MIXED = "tests/benchmarks/test_cpp_benchmarks.py"


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def collected(*words):
    done = run("--collect-only", "-q", *words)
    return set(re.findall(r"^\S+::\S+$", done.stdout, re.M))


@pytest.mark.gate
def test_tiers_add_up():
    gate = collected(MIXED)
    pulled = collected("--tier=pulled", "--pull=benchmarks", MIXED)
    assert gate
    assert pulled
    assert not gate & pulled
    assert collected("--pull=benchmarks", MIXED) == gate | pulled
    assert collected("--tier=long", MIXED) == gate | pulled


@pytest.mark.gate
def test_what_is_longer_runs_again():
    part = "--pull=launcher-kills"
    assert (
        collected(LONGER) == collected("--tier=pulled", part, LONGER) != set()
    )


@pytest.mark.gate
def test_nothing_to_run_is_no_failure():
    assert run("--tier=pulled", "--pull=", LONGER).returncode == 0


@pytest.mark.gate
@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_has_no_time_is_counted(workers):
    words = ("--tier=pulled", "--pull=launcher-kills", "--minutes=0")
    done = run(*words, "-n", workers, LONGER)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "1 tests had no time within --minutes" in done.stdout


def test_an_unknown_part():
    done = run("--pull=launcher", LONGER)
    assert done.returncode != 0
    assert "--pull: no part ['launcher']" in done.stderr


@pytest.mark.gate
def test_tests_of_another_environment_are_left_out():
    found = run("--collect-only", "-q", "tests").stdout
    assert "tests/unit/" in found
    others = [each for each in ENVIRONMENTS.values() if each.is_only]
    assert others
    for environment in others:
        assert f"tests/{environment.folder}/" not in found
