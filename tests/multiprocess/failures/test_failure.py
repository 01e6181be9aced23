"""A rank that dies: every survivor ends soon, with an error that says who."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.harness import codes, run_ranks
from tests.multiprocess.failures import rank_jobs
from tests.tiers import few

pytestmark = pytest.mark.alone
# Seconds from the death of a rank to the end of the others' processes. The
# deadlines of a slow machine are stretched, as the harness does.
LIMIT = 1.0 * float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
SCRIPT = Path(__file__).with_name("run_job.py")


def kill_and_check(
    target, victim, args=(), hosts=None, survivor=codes.TEST_FAILURE
):
    killed_at = []
    num_ranks = 4

    def kill(running):
        for rank in range(num_ranks):
            running.wait_for(rank, "training", timeout=60)
        killed_at.append(running.send(victim, signal.SIGKILL))

    expect = dict.fromkeys(range(num_ranks), survivor)
    expect[victim] = -signal.SIGKILL
    result = run_ranks(
        target,
        num_ranks,
        args=args,
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


@pytest.mark.parametrize("victim", few(range(4), "faults"))
def test_fit(victim):
    kill_and_check(rank_jobs.fit_until_killed, victim)


def test_programs_as_users_start_them():
    """Each in an interpreter of its own, ended by an uncaught exception."""
    kill_and_check(SCRIPT, 0, args=("fit_until_killed",), survivor=1)


@pytest.mark.parametrize(
    "mode", few(["function", "compiled", "eager"], "faults", 2)
)
def test_collectives(mode):
    kill_and_check(rank_jobs.train_until_killed, 2, args=(mode,))


@pytest.mark.parametrize("victim", few([2, 1, 3], "faults"))
def test_two_hosts(victim):
    kill_and_check(
        rank_jobs.train_until_killed,
        victim,
        args=("function",),
        hosts=[0, 0, 1, 1],
    )


def test_a_frozen_rank_is_lost_after_the_heartbeat_limit():
    def freeze(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        running.send(1, signal.SIGSTOP)
        time.sleep(4)  # three times the limit; the others have ended
        running.send(1, signal.SIGKILL)

    result = run_ranks(
        rank_jobs.train_until_killed,
        3,
        args=("function",),
        expect={
            0: codes.TEST_FAILURE,
            1: -signal.SIGKILL,
            2: codes.TEST_FAILURE,
        },
        on_start=freeze,
        env={"KERAS_RING_HEARTBEAT_TIMEOUT": "1"},
        deadline=120,
    )
    for rank in (0, 2):
        assert "UnavailableError" in result.ranks[rank].stderr
        assert "lost rank 1" in result.ranks[rank].stderr
        assert "nothing was heard from it for 1 s" in result.ranks[rank].stderr
        assert result.ranks[rank].end_time < result.ranks[1].end_time - 1


def test_a_job_that_is_paused_as_a_whole_goes_on(tmp_path):
    """By a scheduler, a freezer, or the host of its virtual machines.

    For longer than any limit on silence; two ranks share a host.
    """
    flag = tmp_path / "end"

    def pause(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        for rank in range(3):
            running.send(rank, signal.SIGSTOP)
        time.sleep(6.5)
        for rank in range(3):
            running.send(rank, signal.SIGCONT)
        # Whoever gave another one up would do so now.
        time.sleep(1.0)
        flag.touch()

    result = run_ranks(
        rank_jobs.agree_until_seen,
        3,
        args=(str(flag),),
        on_start=pause,
        hosts=[0, 0, 1],
        env={
            "KERAS_RING_HEARTBEAT_TIMEOUT": "2",
            "KERAS_RING_STALL_CHECK_TIME": "4",
            "KERAS_RING_STALL_SHUTDOWN_TIME": "5",
        },
        deadline=120,
    )
    assert result.values == [True, True, True]
    for rank in result.ranks:
        assert "Stalled" not in rank.stderr
