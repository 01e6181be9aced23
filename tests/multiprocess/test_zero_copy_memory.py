"""What it costs in memory that tensors are read where they lie."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess import rank_memory
from tests.tiers import few

# Twice the fusion threshold, and 16 MiB.
BOUND = 2 * 64 + 16
TOTAL, LIVE = 1024, 512


def most_resident(size, zero_copy, **env):
    result = run_ranks(
        rank_memory.many_tensors,
        size,
        args=(TOTAL, LIVE),
        deadline=180,
        env={"KERAS_RING_ZERO_COPY": zero_copy, **env},
    )
    for rank, value in enumerate(result.values):
        print(
            f"{size} ranks, KERAS_RING_ZERO_COPY={zero_copy}, {env}, rank"
            f" {rank}: resident, shared, private, unmapped MiB: {value}"
        )
    return result.values


@pytest.mark.parametrize("size", few([2, 3], "stress", keep=0))
def test_a_rank_takes_little_more_than_alone(size):
    ((alone, *_),) = most_resident(1, "0")
    copied = max(rank[0] for rank in most_resident(size, "0"))
    ranks = most_resident(size, "1")
    for resident, _, _, unmapped in ranks:
        assert resident <= alone + BOUND
        assert resident <= copied + BOUND
        assert unmapped > 0


def test_the_bound_follows_the_fusion_threshold():
    ((alone, *_),) = most_resident(1, "0")
    env = {"KERAS_RING_FUSION_THRESHOLD": "0"}
    for resident, *_ in most_resident(2, "1", **env):
        assert resident <= alone + 16 + 16
