"""Collectives of PyTorch's tensors, on ranks that have PyTorch alone."""

import pytest

from tests.harness import run_ranks
from tests.pytorch import rank_collectives
from tests.tiers import few


@pytest.mark.parametrize(
    "function",
    [
        rank_collectives.reductions,
        rank_collectives.moves,
        rank_collectives.layouts,
        rank_collectives.asynchronous,
        rank_collectives.factors_and_compression,
        rank_collectives.derivatives,
        rank_collectives.sparse,
        rank_collectives.sets_and_objects,
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
        "list": ("TypeError", "Received: [1.0]"),
        "sparse": ("TypeError", "to_dense()"),
        "complex": ("TypeError", "torch.complex64"),
        "meta": ("TypeError", "on meta"),
        "op": ("TypeError", "Received: 'sum'"),
        "compression": ("TypeError", "Received: 16"),
        "adasum": ("TypeError", "torch.int32"),
        "scalar": ("ValueError", "Reshape it to [1]"),
        "rows": ("ValueError", "Reshape it to [1]"),
        "none": ("ValueError", "not empty"),
        "root": ("ValueError", "root_rank=2"),
        "splits": ("ValueError", "torch.float32"),
        "shape": ("FailedPreconditionError", "[2]"),
        "minimum": ("RuntimeError", "Min has no derivative"),
        "name": ("ValueError", "of rank 1"),
    }
    assert sorted(first) == sorted(wanted)
    for found in (first, second):
        for name, (kind, text) in wanted.items():
            assert found[name] is not None, name
            assert found[name][0] == kind, found[name]
            assert text in found[name][1], found[name]


def test_a_lost_rank_is_named():
    result = run_ranks(rank_collectives.lost, 3, fresh=True, expect={1: -9})
    for rank in (0, 2):
        text, seconds = result.values[rank]
        assert "rank 1" in text
        assert seconds < 5
