"""A training goes on without the ranks that are killed in its midst."""

import os
import random
import re
import sys

import pytest

from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(180)

_LINE = re.compile(
    r"was (\d): rank (\d) of (\d), (\d+) steps, (\d+) updates, digests (\w+)"
)


def train(how, updates, deaths, *, ranks=4):
    """Trains; returns what ranks print at the end, by the rank they were."""
    words = ("run", "--elastic", "-np", str(ranks), "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.training")
    texts = ",".join(f"{rank}:{after}" for rank, after in deaths.items())
    command = Command(*words, *program, how, str(updates), texts)
    done = command.wait()
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stderr)
    return {
        int(was): tuple(rest) for was, *rest in _LINE.findall(done.stdout)
    }, done.stderr


def check(ends, deaths, *, ranks=4, updates):
    left = [rank for rank in range(ranks) if rank not in deaths]
    assert list(sorted(ends)) == left
    for position, was in enumerate(left):
        rank, size, steps, counted, digests = ends[was]
        assert (int(rank), int(size)) == (position, len(left))
        # Each loss costs at most one step.
        assert int(steps) == updates
        assert updates - len(deaths) <= int(counted) <= updates
        assert digests == ends[left[0]][-1]


@pytest.mark.parametrize("how", ["loop", "fit", "eager", "tape"])
def test_goes_on_without_killed_ranks(how):
    deaths = {0: 0.3, 2: 0.31}
    ends, lines = train(how, 320, deaths)
    check(ends, deaths, updates=320)
    assert "2 ranks go on" in lines


def test_the_last_rank_ends_alone():
    deaths = {0: 0.2, 1: 0.3, 2: 0.4}
    ends, lines = train("fit", 320, deaths)
    check(ends, deaths, updates=320)
    assert "1 rank goes on" in lines


def test_is_a_job_like_others_if_nobody_is_killed():
    ends, lines = train("fit", 160, {}, ranks=2)
    check(ends, {}, ranks=2, updates=160)
    assert "go on" not in lines


@pytest.mark.long("faults")
@pytest.mark.parametrize("seed", range(12))
def test_deaths_at_any_time(seed):
    draw = random.Random(seed)
    victims = draw.sample(range(4), draw.randint(1, 3))
    deaths = {rank: round(draw.uniform(0, 1.2), 3) for rank in victims}
    how = draw.choice(["loop", "fit", "eager", "tape", "eager_tape"])
    print(how, deaths, os.getpid())
    ends, _ = train(how, 320, deaths)
    check(ends, deaths, updates=320)
