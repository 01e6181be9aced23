"""Tensors of PyTorch in memory that all ranks of the host read."""

import pytest

from keras_ring.torch import arena
from tests.harness import run_ranks
from tests.pytorch import rank_arena

needs_headers = pytest.mark.skipif(
    not arena.is_built(), reason="PyTorch had no headers at build time"
)


@needs_headers
def test_large_tensors_are_in_the_arena():
    for few, many, after in run_ranks(rank_arena.uses, 2, fresh=True).values:
        assert few == 0
        assert many == 4 << 20
        assert after == 0


def test_not_where_the_program_wants_none():
    result = run_ranks(
        rank_arena.uses, 2, fresh=True, env={"KERAS_RING_ZERO_COPY": "0"}
    )
    assert result.values == [(0, 0, 0)] * 2


@pytest.mark.parametrize(
    "function", [rank_arena.changes_of_size, rank_arena.loads]
)
def test_the_values_are_those_of_the_program(function):
    assert run_ranks(function, 2, fresh=True).values == [True] * 2
