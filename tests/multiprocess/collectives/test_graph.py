"""How often and in which order TensorFlow runs our ops."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_graph


@pytest.mark.quick
def test_two_allreduces_of_a_function_are_in_flight_at_once():
    run_ranks(rank_graph.overlap, 2)


def test_ops_run_as_often_as_the_program_says():
    result = run_ranks(rank_graph.executions, 2, deadline=90)
    for counts in result.values:
        # One more for the barrier at the end of each.
        assert counts == {
            "constant": 4,
            "twins": 3,
            "unused": 2,
            "control": 2,
            "loop": 6,
            "free": 6,
            "nested": 3,
        }


def test_functions_that_are_traced_and_run_once():
    """By more ranks than there are cores, without one that stands still."""
    result = run_ranks(rank_graph.functions_that_run_once, 3, deadline=60)
    assert result.values == [[9.0 * number for number in range(40)]] * 3


def test_a_cancelled_step_ends_and_leaves_the_job_whole():
    result = run_ranks(rank_graph.cancelled_step, 2)
    assert result.values == [[2.0] * 4] * 2


def test_cancelled_steps_do_not_leak():
    result = run_ranks(rank_graph.cancelled_again_and_again, 2, deadline=90)
    # A round holds 2 MiB of tensors; twenty that leaked would be 40 MiB.
    assert max(result.values) < 10 << 20
