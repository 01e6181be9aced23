"""Ranks train what one process trains on the whole batch."""

import keras
import pytest

from tests.keras.parity.cases import CASES, shipped
from tests.keras.parity.comparison import compare

# One job of all cases, and the first test waits for it.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def rows():
    return {row.case.name: row for row in compare(CASES)}


@pytest.mark.parametrize("name", [case.name for case in CASES])
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
