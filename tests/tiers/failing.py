"""Not collected unless it is named: tests that fail, for tests of the gate."""

import pytest


@pytest.fixture
def broken():
    raise OSError("of the fixture")


def test_that_fails():
    print("what it printed")
    raise ValueError("of the test")


def test_that_cannot_begin(broken):
    pass


def test_that_passes():
    pass
