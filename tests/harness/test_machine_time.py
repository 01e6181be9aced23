"""Deadlines count the time that ranks could have had."""

import pytest

from tests.harness.machine_time import MachineTime, num_runnable


@pytest.mark.parametrize(
    ("runnable", "seconds"),
    [(0, 10), (2, 10), (4, 5), (7, 10 * 2 / 7), (1000, 2.5)],
)
def test_it_goes_slower_where_threads_wait(runnable, seconds):
    now = [100.0]
    clock = MachineTime(lambda: now[0], lambda: runnable, cores=2)
    assert clock.elapsed() == 0
    for _ in range(10):
        now[0] += 1
        clock.elapsed()
    assert clock.elapsed() == pytest.approx(seconds)


def test_what_is_runnable_is_read():
    assert 0 <= num_runnable() < 100_000
