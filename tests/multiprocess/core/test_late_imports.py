"""`init()` before, or without, the import of a framework."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess.core import rank_late_imports as rank


def test_nothing_is_loaded_that_is_not_asked_for():
    assert run_ranks(rank.nothing_loaded, 2, fresh=True).values == [[], []]


def test_the_first_result_comes_soon():
    values = run_ranks(rank.seconds_to_first_result, 2, fresh=True).values
    # 0.1 s on a machine that has time; this is for one that has not.
    assert max(values) < 2


@pytest.mark.parametrize("first", ["tensorflow", "keras"])
def test_a_framework_may_come_after_init(first):
    result = run_ranks(
        rank.a_framework_that_comes_later, 2, args=(first,), fresh=True
    )
    assert result.values[0] == result.values[1]


def test_another_backend_is_told_where_it_trains():
    for told in run_ranks(rank.another_backend, 2, fresh=True).values:
        assert len(told) == 3
        for text in told:
            assert text.startswith("Keras runs on 'openvino' here")


def test_errors_are_those_of_tensorflow_as_well():
    result = run_ranks(rank.errors_are_tensorflows_as_well, 2, fresh=True)
    for root, shape in result.values:
        assert "17" in root
        assert "shape" in shape
