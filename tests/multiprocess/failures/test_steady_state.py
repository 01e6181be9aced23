"""What a job costs while it waits, and while it trains."""

import pytest

from tests import tiers
from tests.harness import run_ranks
from tests.multiprocess.failures import rank_jobs


@pytest.mark.alone
def test_an_idle_job_uses_no_cpu():
    seconds = tiers.amount(5.0, 60.0)
    result = run_ranks(
        rank_jobs.cpu_seconds_while_idle, 4, args=(seconds,), deadline=90
    )
    print("CPU seconds of each rank in", seconds, "s:", result.values)
    assert max(result.values) < 0.01 * seconds


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_control_traffic_of_a_large_model(zero_copy):
    result = run_ranks(
        rank_jobs.resnet50_steps,
        2,
        args=(20,),
        deadline=120,
        env={"KERAS_RING_ZERO_COPY": zero_copy},
    )
    for seconds, control_bytes in result.values:
        print(f"{seconds * 1e3:.1f} ms, {control_bytes:.0f} bytes of control")
        assert control_bytes < 1024


def test_control_traffic_of_many_names():
    """Of none of 1,500 more than a bit is sent, once in a step.

    With their names and shapes they would be 60 KiB.
    """
    result = run_ranks(rank_jobs.many_names, 2, args=(1500, 15), deadline=120)
    print(f"{max(result.values):.0f} bytes of control in a step")
    assert max(result.values) < 1024
