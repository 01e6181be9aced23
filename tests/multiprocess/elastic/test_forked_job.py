"""Ranks are killed, and the others go on with weights that are alike.

`forked_job` has the ranks, which are forks of a program that does nothing else.
"""

import re
import subprocess
import sys

import pytest


def kills(count, *options, limit):
    """Runs the program; returns the numbers of the line that it prints."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.multiprocess.elastic.forked_job"),
            *("--kills", str(count), *options),
        ],
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not ended.stderr
    print(ended.stdout)
    return [float(text) for text in re.findall(r"[0-9.]*[0-9]", ended.stdout)]


def test_any_rank_may_be_killed_until_one_is_left():
    killed, changes, *_ = kills(9, limit=60)
    assert (killed, changes) == (9, 9)


def test_of_two_ranks_one_goes_on():
    kills(3, "--ranks", "2", "--seed", "7", limit=60)


@pytest.mark.long("faults")
def test_many_kills():
    kills(200, "--ranks", "4", limit=300)
    kills(100, "--ranks", "8", "--seed", "1000", limit=300)
