"""A rank that dies: every survivor ends soon, with an error that says who."""

import signal

import pytest

from tests.harness import run_ranks
from tests.multiprocess import rank_jobs

SURVIVOR = 10  # the harness's code for an exception


def kill_and_check(function, victim, num_ranks=4, args=(), hosts=None):
    killed_at = []

    def kill(running):
        for rank in range(num_ranks):
            running.wait_for(rank, "training", timeout=60)
        killed_at.append(running.send(victim, signal.SIGKILL))

    expect = dict.fromkeys(range(num_ranks), SURVIVOR)
    expect[victim] = -signal.SIGKILL
    result = run_ranks(
        function,
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
        assert rank.error_type == "UnavailableError", rank.error
        assert f"lost rank {victim} (host" in rank.error
        delays.append(rank.end_time - killed_at[0])
    print(f"rank {victim} killed; survivors ended after", delays)
    # One second to know and to say so, and what the interpreter takes to end.
    assert max(delays) < 1.0 + 1.0, delays


@pytest.mark.parametrize("victim", range(4))
def test_fit(victim):
    kill_and_check(rank_jobs.fit_until_killed, victim)


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_collectives(mode):
    kill_and_check(rank_jobs.train_until_killed, 2, args=(mode,))


@pytest.mark.parametrize("victim", [1, 2, 3])
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

    result = run_ranks(
        rank_jobs.train_until_killed,
        3,
        args=("function",),
        # The harness ends the frozen one once the others have failed.
        expect={
            0: SURVIVOR,
            1: (-signal.SIGKILL, -signal.SIGTERM),
            2: SURVIVOR,
        },
        on_start=freeze,
        env={"KERAS_RING_HEARTBEAT_TIMEOUT": "3"},
        deadline=120,
    )
    for rank in (0, 2):
        error = result.ranks[rank].error
        assert "rank 1" in error
        assert (
            "nothing was heard from it for 3 s" in error or "no byte" in error
        )
