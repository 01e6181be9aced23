"""Trainings with Optax on several ranks are those of one process."""

import pytest

from tests.harness import run_ranks
from tests.tiers import few
from tests.with_jax import rank_optimizer


@pytest.mark.parametrize("num_ranks", few([2, 3], "parity", 1))
def test_parameters_are_those_of_one_process(num_ranks):
    result = run_ranks(rank_optimizer.beside_one_process, num_ranks, fresh=True)
    for apart in result.values:
        assert len(apart) == 7
        # float64, of values around 1.
        assert max(apart.values()) < 1e-13, apart


def test_what_is_compressed_is_rounded():
    first, second = run_ranks(rank_optimizer.compressed, 2, fresh=True).values
    assert first == second
    assert 0 < first < 1e-3


def test_arguments_are_checked():
    told, _ = run_ranks(rank_optimizer.refusals, 2, fresh=True).values
    assert len(told) == 2
    assert "Received: 0" in told[0]
    assert "needs `op=kr.Average`" in told[1]


def test_metrics_are_averaged():
    result = run_ranks(rank_optimizer.metrics, 2, fresh=True)
    assert result.values == [(1.5, 0.5)] * 2
