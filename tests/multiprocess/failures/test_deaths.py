"""The death of a rank is known at once, however much memory it has.

The kernel frees the memory of a process before it closes its connections,
unless another process has that memory. How long that takes is the measure: the
processor that does it is as busy as those of the other ranks.
"""

import signal
import statistics

import pytest

from tests.harness import run_ranks
from tests.multiprocess.failures import deaths
from tests.multiprocess.failures.rank_deaths import reduce_until_lost

pytestmark = pytest.mark.alone


def kill(num_ranks, victim, gib, *, forks=False, hosts=None):
    """As `deaths.kill`, of ranks that use TensorFlow, perhaps on two hosts."""
    killed_at = []

    def on_start(running):
        for rank in range(num_ranks):
            running.wait_for(rank, "training", timeout=60)
        killed_at.append(running.send(victim, signal.SIGKILL))

    result = run_ranks(
        reduce_until_lost,
        num_ranks,
        args=(victim, gib, forks),
        expect={victim: -signal.SIGKILL},
        on_start=on_start,
        hosts=hosts,
        deadline=120,
    )
    told = [rank.value for rank in result.ranks if rank.rank != victim]
    return deaths.Death(
        heard=max(when for when, _ in told) - killed_at[0],
        gone=result.ranks[victim].end_time - killed_at[0],
        texts=[text for _, text in told],
    )


def check(death, victim):
    print(f"heard after {death.heard:.4f} s, gone after {death.gone:.4f} s")
    assert len(set(death.texts)) == 1, death
    assert f"lost rank {victim} (host" in death.texts[0]
    assert death.heard < death.gone / 2, death


@pytest.mark.parametrize("victim", range(3))
def test_is_heard_long_before_the_memory_is_free(victim):
    check(deaths.kill(num_ranks=3, victim=victim, gib=1), victim)


def test_is_heard_by_a_program():
    # TensorFlow's threads share the processors with ours: so the measure is
    # longer here.
    check(kill(num_ranks=3, victim=2, gib=2), 2)


def test_is_heard_though_a_fork_keeps_the_connections_open():
    """Else the others would wait for the heartbeat limit, 30 s."""
    death = kill(num_ranks=2, victim=1, gib=0, forks=True)
    assert death.heard < 15, death


@pytest.mark.parametrize("victim", range(5))
def test_is_heard_on_other_hosts(victim):
    """From a neighbour on the dead rank's host, whichever rank that is."""
    hosts = [0, 0, 1, 1, 1]
    check(deaths.kill(5, victim, gib=1, hosts=hosts), victim)


@pytest.mark.parametrize("victim", range(2))
def test_of_a_rank_that_is_alone_on_its_host_connections_close_first(victim):
    check(deaths.kill(3, victim, gib=1, hosts=[0, 1, 2]), victim)


@pytest.mark.long("faults")
@pytest.mark.parametrize("victim", [2, 3])
def test_is_heard_by_a_program_on_two_hosts(victim):
    check(kill(num_ranks=4, victim=victim, gib=2, hosts=[0, 0, 1, 1]), victim)


@pytest.mark.long("large")
@pytest.mark.timeout(300)
def test_of_any_size():
    killed = [deaths.kill(4, victim, gib=8) for victim in range(4)]
    heard = statistics.median(death.heard for death in killed)
    gone = statistics.median(death.gone for death in killed)
    print(f"heard after {heard:.4f} s, gone after {gone:.4f} s")
    assert heard < gone / 20
