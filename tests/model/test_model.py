"""Every case holds, and every seeded fault is found."""

import dataclasses

import pytest

from tests.model import (
    chunk_barrier,
    doorbell,
    membership,
    negotiation,
    slots,
    stage_bell,
)
from tests.model.catalogue import CASES, SEEDED, case
from tests.model.explorer import Violation, explore


@pytest.mark.parametrize(
    "one", [c for c in CASES if not c.large], ids=lambda c: c.name
)
def test_case_holds(one):
    report = explore(one.model())
    assert report.fault is None, report.text()
    assert report.states > 50


@pytest.mark.parametrize("seeded", SEEDED, ids=lambda s: s.name)
def test_seeded_fault_is_found(seeded):
    report = explore(case(seeded.case).model(seeded.faults))
    assert report.fault is not None
    # A shortest way there, short enough to be read.
    assert 3 <= len(report.trace) <= 70


def test_every_fault_is_seeded():
    seeded = {(type(s.faults), s.name) for s in SEEDED}
    for module in (
        *(chunk_barrier, doorbell, membership),
        *(negotiation, slots, stage_bell),
    ):
        for field in dataclasses.fields(module.Faults):
            assert (module.Faults, field.name) in seeded


class Numbers:
    """Counts up to 3, where `after` says what comes next."""

    def __init__(self, after):
        self.after = after

    def initial(self):
        return 0

    def actions(self, state):
        for to in self.after.get(state, ()):
            if to == "bad":
                raise Violation("a bad step", f"{state} to {to}")
            yield f"{state} to {to}", to

    def is_final(self, state):
        return state == 3

    def fault(self, state):
        return "seven" if state == 7 else None


@pytest.mark.parametrize(
    ("after", "fault", "trace"),
    [
        ({0: [1, 2], 1: [3], 2: [3]}, None, ()),
        ({0: [1, 2], 1: [3]}, "deadlock", ("0 to 2",)),
        ({0: [1], 1: [0, 3, 7]}, "seven", ("0 to 1", "1 to 7")),
        ({0: [1], 1: ["bad"]}, "a bad step", ("0 to 1", "1 to bad")),
        # It moves for ever, but never ends.
        (
            {0: [1, 3], 1: [2], 2: [1]},
            "no end can be reached any more",
            ("0 to 1",),
        ),
        # It moves for ever, but may end.
        ({0: [1], 1: [0, 3]}, None, ()),
    ],
)
def test_what_the_explorer_finds(after, fault, trace):
    report = explore(Numbers(after))
    assert (report.fault, report.trace) == (fault, trace)
