"""Checks that cost time: all at first, then a hundredth of the time."""

import pytest

from keras_ring.core import generations
from keras_ring.keras.agreement import time_budget


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time_budget, "time", clock)
    return clock


def run(clock, budget, periods, period, cost, wish_of_others=0):
    """Returns after which periods it was checked."""
    checked = []
    for number in range(periods):
        clock.now += period
        if budget.is_due():
            checked.append(number)
            with budget.checking():
                clock.now += cost
                wish = budget.wish()
            budget.agreed(max(wish, wish_of_others))
    return checked


def test_cheap_checks_are_always_made(clock):
    budget = time_budget.Budget(allowance=1.0)
    assert run(clock, budget, 50, 1.0, 0.009) == list(range(50))


def test_the_first_checks_are_made_whatever_they_cost(clock):
    budget = time_budget.Budget(allowance=1.0)
    checked = run(clock, budget, 6, 0.1, 0.2)
    assert checked == list(range(6))


def test_dear_checks_take_a_hundredth_of_the_time(clock):
    budget = time_budget.Budget(allowance=1.0)
    checked = run(clock, budget, 20_000, 0.01, 0.02)
    spent = 0.02 * len(checked)
    assert 1.0 < spent < 1.0 + 0.015 * clock.now
    assert len(checked) > 60


def test_a_rank_waits_for_the_slowest(clock):
    budget = time_budget.Budget(allowance=1.0)
    assert run(clock, budget, 21, 1.0, 0.0, wish_of_others=5) == [
        0,
        5,
        10,
        15,
        20,
    ]


def test_ranks_begin_anew_when_others_have_come_in(clock, monkeypatch):
    budget = time_budget.Budget(allowance=1.0)
    assert run(clock, budget, 4, 1.0, 2.0) == [0, 1]
    monkeypatch.setattr(generations, "_num_admissions", 1)
    other = time_budget.Budget(allowance=1.0)
    assert run(clock, budget, 4, 1.0, 2.0) == [0, 1]
    assert run(clock, other, 4, 1.0, 2.0) == [0, 1]
