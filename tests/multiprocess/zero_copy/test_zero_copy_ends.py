"""Nobody reads a tensor that is gone, and nobody's end harms the others."""

import os
import signal
import time

import pytest

from tests.harness import codes, run_ranks
from tests.multiprocess.zero_copy import rank_zero_copy_ends
from tests.tiers import few

# Limits on how soon survivors end.
pytestmark = pytest.mark.alone

ON = {"KERAS_RING_ZERO_COPY": "1"}
# Of survivors, as in test_failure.
LIMIT = 1.0 * float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))


def test_a_cancelled_step_keeps_its_tensors_for_the_others():
    run_ranks(rank_zero_copy_ends.cancelled_steps, 2, deadline=120, env=ON)


@pytest.mark.parametrize(("size", "zero_copy"), [(2, "0"), (2, "1"), (3, "1")])
def test_jobs_one_after_another(size, zero_copy):
    result = run_ranks(
        rank_zero_copy_ends.jobs_one_after_another,
        size,
        args=(6,),
        deadline=180,
        env={"KERAS_RING_ZERO_COPY": zero_copy},
    )
    assert all(sums > 0 for sums in result.values)


DEATHS = {
    "signal": -signal.SIGKILL,
    "exit": 7,
    "segfault": -signal.SIGSEGV,
}


# A rank is read for most of the time; the moments differ all the same.
@pytest.mark.parametrize("again", few(range(4), "faults"))
@pytest.mark.parametrize("how", list(DEATHS))
def test_a_rank_dies_while_it_is_read(how, again):
    killed = []

    def kill(running):
        for rank in range(3):
            running.wait_for(rank, "reducing", timeout=90)
        time.sleep(0.003 * again)
        killed.append(running.send(1, signal.SIGKILL))

    result = run_ranks(
        rank_zero_copy_ends.reduce_large_until_death,
        3,
        args=(how,),
        expect={
            0: codes.TEST_FAILURE,
            1: DEATHS[how],
            2: codes.TEST_FAILURE,
        },
        on_start=kill if how == "signal" else None,
        env=ON,
        deadline=120,
    )
    for rank in (0, 2):
        assert "UnavailableError" in result.ranks[rank].stderr
        assert "lost rank 1 (host" in result.ranks[rank].stderr
        died = killed[0] if killed else result.ranks[1].end_time
        delay = result.ranks[rank].end_time - died
        print(f"rank {rank} ended after {delay:.3f} s")
        assert delay < LIMIT
