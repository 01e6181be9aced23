"""A name means one thing, the same on all ranks, whatever each has traced."""

import pytest

import keras_ring as kr
from tests import tiers
from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_names
from tests.tiers import few


@pytest.mark.longer("programs")
@pytest.mark.parametrize(
    ("size", "threads", "compiled"),
    [
        (2, 1, False),
        (3, 2, False),
        *few([(4, 3, False)], "programs", keep=0),
        pytest.param(
            2,
            1,
            True,
            marks=pytest.mark.skipif(
                not kr.xla_built(), reason="not built for this TensorFlow"
            ),
        ),
        *few([(3, 2, True)], "programs", keep=0),
    ],
)
def test_random_programs(size, threads, compiled):
    count = tiers.amount(16 if tiers.pulled("programs") else 4, 960)
    count = max(count // 4, threads) if compiled else count
    count -= count % threads
    seed = tiers.seed(1) % 100_000 * 1000
    print(f"seeds {seed} to {seed + count - 1}")
    result = run_ranks(
        rank_names.programs,
        size,
        args=(seed, count, compiled, threads),
        deadline=60 + 10 * count,
    )
    assert result.values == [4 * count] * size


def test_what_a_function_calls_has_its_names():
    """A function that is called twice, and one with a name of its caller."""
    for found in run_ranks(rank_names.calls, 2).values:
        assert found == {
            "twice": [[3.0, 30.0]] * 5,
            "called": [[3.0, 30.0]] * 5,
            "branch": [[3.0, 30.0]] * 5,
            "other_branches": [1.0 + 20.0] * 5,
        }


def test_two_broadcasts_in_one_function():
    values = run_ranks(rank_names.broadcasts_in_one_function, 2).values
    assert values == [(1.0, 2.0)] * 2


def test_one_name_twice_in_a_tf1_graph():
    values = run_ranks(rank_names.broadcasts_in_a_tf1_graph, 2).values
    assert values == [[0.0, 10.0, 20.0, 30.0]] * 2


@pytest.mark.skipif(not kr.xla_built(), reason="compiles a function")
def test_functions_of_one_name_in_a_compiled_one():
    values = run_ranks(rank_names.functions_of_one_name_compiled, 2).values
    assert values == [[3.0, 30.0]] * 2


def test_a_rank_that_traces_again_alone():
    values = run_ranks(rank_names.one_rank_traces_again, 2).values
    assert values == [[4.0, 3.0, 4.0]] * 2


def test_threads():
    for totals, errors in run_ranks(rank_names.threads, 2).values:
        for number in range(5):
            assert totals[number] == [
                1.0 + 20 * number + 2 * step for step in range(20)
            ]
        assert 5 not in totals
        (error,) = errors
        assert "called without a name on thread" in error
        assert 'kr.allreduce(..., name="...")' in error
