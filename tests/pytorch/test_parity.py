"""Keras on PyTorch trains on ranks what one process trains: the table."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import pytest

from tests.keras.parity.cases import CASES
from tests.keras.parity.comparison import compare

_JOBS = 6


@pytest.mark.long("parity")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(_JOBS))
def test_parity(first):
    rows = compare(CASES[first::_JOBS])
    assert len(rows) > 6
    assert [(row.case.name, row.faults) for row in rows if row.faults] == []
