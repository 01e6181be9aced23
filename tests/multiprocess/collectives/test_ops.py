"""Every op, dtype and mode against NumPy, on ranks that are processes."""

import pytest

from tests import tiers
from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_ops

MODES = ["eager", "function", "graph"]
COMPILED = [*MODES, "compiled"]


def run(num_ranks, calls, **options):
    """Runs several functions of rank_ops in one job."""
    result = run_ranks(
        rank_ops.several, num_ranks, args=(calls,), deadline=180, **options
    )
    return result.values


def test_allreduce():
    values = run(3, [("allreduce_table", mode) for mode in COMPILED])
    assert values == [[10 * 5 * 7] * 4] * 3


def test_on_two_hosts():
    run(
        4,
        [
            ("allreduce_table", "function"),
            ("gathers", "function"),
            ("broadcasts", "function"),
        ],
        hosts=[0, 0, 1, 1],
    )


def test_allgather_and_broadcast():
    run(
        3,
        [("gathers", mode) for mode in MODES]
        + [("broadcasts", mode) for mode in COMPILED],
    )


@pytest.mark.quick
def test_grouped_allreduce_is_one_entry():
    assert run(2, [("grouped", mode) for mode in COMPILED]) == [[1] * 4] * 2


@pytest.mark.quick
def test_scales_compression_and_sparse_tensors():
    run(3, [("scales_and_compression",), ("sparse",)])


def test_scaled_integers_and_groups_with_slices():
    run(
        2,
        [
            *(("scaled_integers", mode) for mode in ("eager", "compiled")),
            ("grouped_slices",),
        ],
    )


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_gradients(num_ranks):
    run(num_ranks, [("gradients", mode) for mode in COMPILED])


@pytest.mark.longer("programs")
def test_random_submission_orders():
    first_seed = tiers.seed(20_000)
    count = 1000 if tiers.pulled("programs") else 200
    print(f"seeds {first_seed} to {first_seed + count - 1}")
    run_ranks(rank_ops.random_orders, 4, args=(count, first_seed), deadline=280)
