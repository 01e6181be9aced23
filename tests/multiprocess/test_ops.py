"""Every op, dtype and mode against NumPy, on ranks that are processes."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess import rank_ops

MODES = ["eager", "function", "graph"]


@pytest.mark.parametrize("mode", MODES)
def test_allreduce(mode):
    result = run_ranks(rank_ops.allreduce_table, 3, args=(mode,), deadline=120)
    assert result.values == [10 * 5 * 7] * 3


def test_allreduce_on_hosts_of_two():
    run_ranks(
        rank_ops.allreduce_table,
        4,
        args=("function",),
        hosts=[0, 0, 1, 1],
        deadline=120,
    )


@pytest.mark.parametrize("mode", MODES)
def test_allgather_and_broadcast(mode):
    run_ranks(rank_ops.moves, 3, args=(mode,), deadline=120)


@pytest.mark.parametrize("mode", MODES)
def test_grouped_allreduce_is_one_entry(mode):
    result = run_ranks(rank_ops.grouped, 2, args=(mode,))
    assert result.values == [1, 1]


def test_scales_and_compression():
    run_ranks(rank_ops.scales_and_compression, 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_gradients(mode, num_ranks):
    run_ranks(rank_ops.gradients, num_ranks, args=(mode,), deadline=120)


def test_sparse_allreduce():
    run_ranks(rank_ops.sparse, 3)


def test_random_submission_orders():
    first_seed = 20_000
    print(f"seeds {first_seed} to {first_seed + 999}")
    run_ranks(rank_ops.random_orders, 4, args=(1000, first_seed), deadline=280)
