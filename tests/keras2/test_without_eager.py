"""Keras 2 with eager execution off."""

import numpy as np
import pytest
import rank_without_eager
from lane import ENVIRONMENT

from tests.harness import only, run_ranks


@pytest.fixture(scope="module")
def two_ranks():
    return run_ranks(
        rank_without_eager.all_of_it, 2, env=ENVIRONMENT, deadline=240
    ).values


def test_ranks_train_as_one_process(two_ranks):
    for rank in two_ranks:
        weights, history = rank["training"]["one"]
        of_ranks, history_of_ranks = rank["training"]["ranks"]
        for a, b in zip(weights, of_ranks, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
        assert history.keys() == history_of_ranks.keys()
        for key, values in history.items():
            np.testing.assert_allclose(
                history_of_ranks[key], values, rtol=1e-5, err_msg=key
            )


def test_warm_up(two_ranks):
    found = only([rank["warm_up"] for rank in two_ranks])
    steps = rank_without_eager.STEPS
    rising = 0.05 * (0.5 + 0.5 * np.arange(2 * steps) / (2 * steps - 1))
    np.testing.assert_allclose(found["seen"][: 2 * steps], rising, rtol=1e-5)
    np.testing.assert_allclose(found["seen"][2 * steps :], 0.05, rtol=1e-5)
    assert found["logs"][-1] == pytest.approx(0.05)


def test_mistakes_are_told(two_ranks):
    for rank in two_ranks:
        mistakes = rank["mistakes"]
        assert (
            "begin to train from different values" in mistakes["no broadcast"]
        )
        assert "different numbers of batches" in mistakes["steps"]
        assert "rank 0: 8, rank 1: 4" in mistakes["steps"]
