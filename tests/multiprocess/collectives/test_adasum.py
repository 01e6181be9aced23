"""Adasum, at numbers of ranks that are powers of two and that are not."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_adasum


@pytest.mark.parametrize(
    "num_ranks, hosts",
    [(1, None), (2, None), (3, None), (5, None), (3, [0, 1, 1])],
)
def test_adasum(num_ranks, hosts):
    result = run_ranks(rank_adasum.run, num_ranks, hosts=hosts, deadline=180)
    for found in result.values:
        assert {name: kind for name, (kind, _) in found.items()} == {
            "integers": "TypeError",
            "parts": "ValueError",
            "slices": "ValueError",
            "predivided": "ValueError",
        }
        assert "floating-point tensors only" in found["integers"][1]
        assert "has no Adasum" in found["parts"][1]
