"""The one rule by which a rank is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.observe.judge import is_most, is_often_last, percent


@pytest.mark.parametrize(
    ("share", "num_ranks", "named"),
    [
        (0.46, 2, False),
        (0.55, 2, False),
        (0.71, 2, True),
        (0.3, 4, False),
        (0.41, 4, True),
        (0.2, 64, True),
        (0.02, 64, False),
        (1.0, 1, False),
    ],
)
def test_who_is_often_last(share, num_ranks, named):
    assert is_often_last(share, num_ranks) is named


@given(st.integers(2, 4096))
def test_equal_ranks_are_not_named(num_ranks):
    assert not is_often_last(1 / num_ranks, num_ranks)
    assert is_often_last(1.0, num_ranks)


def test_who_is_most_of_what_all_are_late():
    assert is_most([0.0, 3.0, 0.1])
    assert not is_most([1.0, 1.0])
    assert not is_most([])
    assert not is_most([0.0, 0.0])


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (0.004, "0.4%"), (0.144, "14%"), (1.0, "100%")],
)
def test_shares_as_people_read_them(share, text):
    assert percent(share) == text
