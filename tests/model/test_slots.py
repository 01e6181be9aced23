"""Slots are never read while they are written, whatever runs after what."""

import itertools

import pytest

from tests.model.explorer import explore
from tests.model.slots import ONE_SHOT, Faults, Slots, move, scatter, two_shots


def menu(size):
    """Every kind, of one chunk and of more, alike and uneven."""
    alone = [0] * (size - 1)
    return [
        ONE_SHOT,
        two_shots(1),
        two_shots(2),
        scatter(1),
        scatter(2),
        move(*[1] * size),
        move(1, *alone),
        move(*alone, 2),
    ]


@pytest.mark.parametrize(
    "collectives",
    [[two_shots(6)], [scatter(6)], [move(6, 4)], [move(0, 6)], [ONE_SHOT] * 6],
)
def test_many_chunks(collectives):
    report = explore(Slots(2, collectives))
    assert report.fault is None, report.text()
    assert report.states > 100


def test_every_sequence_of_three_on_two_ranks():
    for collectives in itertools.product(menu(2), repeat=3):
        report = explore(Slots(2, collectives))
        assert report.fault is None, (collectives, report.text())
        assert report.states > 20


def test_every_sequence_of_two_on_three_ranks():
    for collectives in itertools.product(menu(3), repeat=2):
        report = explore(Slots(3, collectives))
        assert report.fault is None, (collectives, report.text())
        assert report.states > 50


@pytest.mark.parametrize(
    "collectives",
    [
        [two_shots(5)],
        [two_shots(1), move(0, 2, 0), two_shots(2)],
        [move(2, 0, 1), ONE_SHOT, scatter(2), two_shots(1)],
    ],
)
def test_longer_ones_on_three_ranks(collectives):
    report = explore(Slots(3, collectives))
    assert report.fault is None, report.text()
    assert report.states > 1000


@pytest.mark.parametrize(
    ("broken", "collectives"),
    [
        ("packs_without_waiting", [move(3, 0)]),
        ("packs_without_waiting", [scatter(3)]),
        ("publishes_before_writing", [ONE_SHOT]),
        ("reduces_without_waiting", [two_shots(1)]),
        ("unpacks_without_waiting", [two_shots(1)]),
        ("unpacks_after_reducing", [two_shots(4)]),
        # This one was in the code.
        ("moves_through_the_result", [two_shots(2), move(2, 0)]),
    ],
)
def test_a_broken_protocol_is_found(broken, collectives):
    assert explore(Slots(2, collectives)).fault is None
    report = explore(Slots(2, collectives, Faults(**{broken: True})))
    assert report.fault is not None
    assert "instead of" in report.fault


def test_a_deadlock_is_found():
    # pack(i) comes before reduce(i - 1).
    faults = Faults(waits_for_the_last_chunk=True)
    assert explore(Slots(2, [two_shots(2)], faults)).fault == "deadlock"
