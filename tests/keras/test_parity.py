"""Ranks train what one process trains on the whole batch."""

import keras
import pytest

from tests.keras.parity.cases import CASES, shipped
from tests.keras.parity.comparison import compare
from tests.tiers import few

# One job of all cases, and the first test waits for it.
pytestmark = pytest.mark.timeout(900)


# In the gate: one of each kind, at equal distances through the table.
GATE = [case.name for case in CASES][:: len(CASES) // 6]


@pytest.fixture(scope="module")
def rows(request):
    """Of the cases that are asked for."""
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    cases = [case for case in CASES if case.name in wanted]
    return {row.case.name: row for row in compare(cases)}


@pytest.mark.parametrize(
    "name",
    few(
        sorted((case.name for case in CASES), key=lambda n: n not in GATE),
        "parity",
        keep=len(GATE),
    ),
)
def test_parity(rows, name):
    row = rows[name]
    assert not row.faults, row


def test_every_optimizer_is_a_case():
    of_keras = {
        name
        for name in dir(keras.optimizers)
        if isinstance(getattr(keras.optimizers, name), type)
        and issubclass(getattr(keras.optimizers, name), keras.Optimizer)
    }
    assert set(shipped()) == of_keras - {"Optimizer"}


def test_names_differ():
    assert len({case.name for case in CASES}) == len(CASES)
