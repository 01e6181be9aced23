"""A rank that dies: every survivor ends soon, with an error that says who."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.harness import run_ranks

# Seconds from the death of a rank to the end of the others' processes. The
# deadlines of a slow machine are stretched, as the harness does.
LIMIT = 1.0 * float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
SCRIPT = Path(__file__).with_name("run_job.py")
SURVIVOR = 1  # an uncaught exception


def kill_and_check(function, victim, num_ranks=4, args=(), hosts=None):
    killed_at = []

    def kill(running):
        for rank in range(num_ranks):
            running.wait_for(rank, "training", timeout=60)
        killed_at.append(running.send(victim, signal.SIGKILL))

    expect = dict.fromkeys(range(num_ranks), SURVIVOR)
    expect[victim] = -signal.SIGKILL
    result = run_ranks(
        SCRIPT,
        num_ranks,
        args=(function, *args),
        expect=expect,
        on_start=kill,
        hosts=hosts,
        deadline=120,
    )
    delays = []
    for rank in result.ranks:
        if rank.rank == victim:
            continue
        assert "UnavailableError" in rank.stderr
        assert f"lost rank {victim} (host" in rank.stderr
        delays.append(rank.end_time - killed_at[0])
    print(f"rank {victim} killed; survivors ended after", delays)
    assert max(delays) < LIMIT, delays


@pytest.mark.parametrize("victim", range(4))
def test_fit(victim):
    kill_and_check("fit_until_killed", victim)


@pytest.mark.parametrize("mode", ["eager", "function", "compiled"])
def test_collectives(mode):
    kill_and_check("train_until_killed", 2, args=(mode,))


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_two_hosts(victim):
    kill_and_check(
        "train_until_killed",
        victim,
        args=("function",),
        hosts=[0, 0, 1, 1],
    )


def test_a_frozen_rank_is_lost_after_the_heartbeat_limit():
    def freeze(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        running.send(1, signal.SIGSTOP)
        time.sleep(10)  # three times the limit; the others have ended
        running.send(1, signal.SIGKILL)

    result = run_ranks(
        SCRIPT,
        3,
        args=("train_until_killed", "function"),
        expect={0: SURVIVOR, 1: -signal.SIGKILL, 2: SURVIVOR},
        on_start=freeze,
        env={"KERAS_RING_HEARTBEAT_TIMEOUT": "3"},
        deadline=120,
    )
    for rank in (0, 2):
        assert "UnavailableError" in result.ranks[rank].stderr
        assert "lost rank 1" in result.ranks[rank].stderr
        assert "nothing was heard from it for 3 s" in result.ranks[rank].stderr
        assert result.ranks[rank].end_time < result.ranks[1].end_time - 2
