"""Collectives of JAX's arrays, on ranks that have JAX alone."""

import pytest

from tests.harness import run_ranks
from tests.tiers import few
from tests.with_jax import rank_collectives


@pytest.mark.parametrize(
    "function",
    [
        rank_collectives.reductions,
        rank_collectives.factors_and_compression,
        rank_collectives.moves,
        rank_collectives.derivatives,
        rank_collectives.transformations,
        rank_collectives.orders,
        rank_collectives.sets_and_objects,
        rank_collectives.names,
    ],
)
@pytest.mark.parametrize(
    "num_ranks, hosts",
    few([(2, None), (3, None), (3, [0, 1, 1])], "programs", 1),
)
def test_collectives(function, num_ranks, hosts):
    result = run_ranks(function, num_ranks, hosts=hosts, fresh=True)
    assert result.values == [True] * num_ranks


def test_no_other_framework_is_loaded():
    result = run_ranks(rank_collectives.imports, 2, fresh=True)
    assert result.values == [[], []]


def test_wrong_calls_are_told():
    first, second = run_ranks(
        rank_collectives.wrong_calls, 2, fresh=True
    ).values
    wanted = {
        "complex": ("TypeError", "no Average of complex64"),
        "adasum": ("TypeError", "int"),
        "op": ("TypeError", "Received: 'sum'"),
        "compression": ("TypeError", "Received: 16"),
        "scalar": ("ValueError", "Reshape it to [1]"),
        "rows": ("ValueError", "shape (5,)"),
        "root": ("ValueError", "root_rank=2"),
        "text": ("TypeError", "'a'"),
        "shape": ("FailedPreconditionError", "[3]"),
        "compiled": ("JaxRuntimeError", "rank 1 has [3]"),
        "vmap": ("NotImplementedError", "whole tensors"),
        "removed": ("ValueError", "is not in this job"),
    }
    assert sorted(first) == sorted(wanted)
    for found in (first, second):
        for name, (kind, text) in wanted.items():
            assert found[name][0] == kind, found[name]
            assert text in found[name][1], found[name]


@pytest.mark.parametrize("count", [1, 3])
def test_a_rank_has_the_threads_that_it_was_given(count):
    result = run_ranks(
        rank_collectives.threads,
        2,
        fresh=True,
        env={"OMP_NUM_THREADS": str(count)},
    )
    assert result.values == [count] * 2


def test_a_program_for_several_devices_is_refused():
    flags = "--xla_force_host_platform_device_count=2"
    result = run_ranks(
        rank_collectives.several_devices,
        2,
        fresh=True,
        env={"XLA_FLAGS": flags},
    )
    for text in result.values:
        assert "one device for each rank" in text


@pytest.mark.parametrize("at_end", [True, False])
def test_who_leaves_has_run_its_programs(at_end):
    result = run_ranks(rank_collectives.leaving, 3, args=(at_end,), fresh=True)
    assert result.values == [True] * 3


def test_a_lost_rank_is_named():
    result = run_ranks(rank_collectives.lost, 3, fresh=True, expect={1: -9})
    for rank in (0, 2):
        text, seconds = result.values[rank]
        assert "rank 1" in text
        assert seconds < 5
