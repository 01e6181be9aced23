"""Losses, metrics and results of a program's own are those of one process."""

import numpy as np
import pytest

from tests.auto import rank_functions
from tests.auto.alike import BOUND, require_alike, require_same_weights
from tests.harness import run_calls

pytestmark = pytest.mark.timeout(900)

FEW = rank_functions.FEW
EXACT = [
    *(("loss", name) for name in rank_functions.LOSSES),
    ("loss", "masked", FEW),
    ("loss", "unlike", FEW),
    ("loss", "unlike", FEW, "eagerly"),
    ("loss", "unlike", FEW, "xla"),
    ("loss", "unlike", FEW, "weighted"),
    ("loss", "whole", FEW, "weighted"),
    ("several_outputs",),
    ("masks",),
    ("half_precision",),
    ("single_batches",),
    ("metrics", 103),
    ("metrics", 44),
    ("untried_metric",),
    ("adding_results",),
    ("values",),
    ("seen_batches",),
]
# The batch of one process is that of three ranks.
OF_THREE = [("own_batches",)]
REFUSED = [
    *(("values_that", how) for how in ("root", "largest", "norm", "later")),
    *(("stacks", how) for how in ("graph", "eagerly", "single")),
    ("metric_that_is_no_sum",),
    ("said",),
]
# Sums in another order, of numbers with so few digits.
BOUNDS = {("half_precision",): 2e-3}


@pytest.fixture(scope="module")
def one_rank():
    return run_calls(rank_functions, 1, [*EXACT, *OF_THREE], deadline=400)


@pytest.fixture(scope="module")
def two_ranks():
    return run_calls(rank_functions, 2, EXACT, deadline=500)


@pytest.fixture(scope="module")
def three_ranks():
    return run_calls(
        rank_functions, 3, [*EXACT, *OF_THREE, *REFUSED], deadline=500
    )


def _name(call):
    return "-".join(map(str, call))


@pytest.mark.parametrize("call", [*EXACT, *OF_THREE], ids=_name)
def test_it_is_what_one_process_makes(call, one_rank, three_ranks):
    _require_alike(call, one_rank, three_ranks)


@pytest.mark.parametrize("call", EXACT, ids=_name)
def test_it_is_so_on_two_ranks(call, one_rank, two_ranks):
    _require_alike(call, one_rank, two_ranks)


def _require_alike(call, one_rank, several):
    (wanted,) = one_rank(*call)
    of_ranks = several(*call)
    for found in of_ranks:
        require_alike(found, wanted, bound=BOUNDS.get(call, BOUND))
    if "weights" in wanted:
        require_same_weights([found["weights"] for found in of_ranks])


def test_a_later_batch_tells_too(one_rank):
    """The case is none if it is so in the first batches."""
    (whole,), (few,) = one_rank("loss", "masked"), one_rank("loss", "unlike")
    assert np.isfinite(whole["history"]["loss"]).all()
    assert np.isfinite(few["history"]["loss"]).all()


@pytest.mark.parametrize("how", ["root", "largest", "norm"])
def test_values_that_do_not_come_together_are_refused(how, three_ranks):
    for text in three_ranks("values_that", how):
        assert text.startswith("AutoError: The step of model 'returns"), text
        assert "(rank_functions.py:" in text
        assert f"returns '{how}', which is neither a mean nor a sum" in text
        assert "`compile(metrics=[...])`" in text


def test_a_step_that_is_no_mean_of_later_batches_is_refused(three_ranks):
    for text in three_ranks("values_that", "later"):
        assert text.startswith("AutoError: The step of model 'returns"), text
        assert "on parts of batch 8 it does not give the gradients" in text


@pytest.mark.parametrize("how", ["graph", "eagerly", "single"])
def test_a_batch_whose_first_axis_is_no_rows_is_refused(how, three_ranks):
    for text in three_ranks("stacks", how):
        assert text.startswith("AutoError: rank_functions.py:"), text
        assert "first axis of all that a batch has is taken for its" in text
        assert "received shapes [(4, 12, 5)]" in text


def test_a_metric_that_does_not_add_up_is_refused(three_ranks):
    for text in three_ranks("metric_that_is_no_sum"):
        assert text.startswith("AutoError: rank_functions.py:"), text
        assert "metric 'largest' (class Largest)" in text
        assert "MetricAverageCallback" not in text


def test_functions_of_all_rows_need_no_check(three_ranks):
    for text in three_ranks("said"):
        assert "checked" not in text
