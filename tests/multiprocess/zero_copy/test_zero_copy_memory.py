"""What it costs in memory that tensors are read where they lie."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess.zero_copy import rank_memory
from tests.tiers import few

# What the arena keeps of free pages, and 16 MiB.
BOUND = 64 + 16
TOTAL, LIVE = 1024, 512


def most_memory(size, zero_copy):
    result = run_ranks(
        rank_memory.many_tensors,
        size,
        args=(TOTAL, LIVE),
        deadline=180,
        env={"KERAS_RING_ZERO_COPY": zero_copy},
    )
    for rank, value in enumerate(result.values):
        print(
            f"{size} ranks, KERAS_RING_ZERO_COPY={zero_copy}, rank {rank}:"
            f" all, shared, private MiB: {value}"
        )
    return [everything for everything, *_ in result.values]


# Pages are given back a while after they are free, later on a busy machine.
@pytest.mark.alone
@pytest.mark.parametrize("size", few([2, 3], "stress", keep=0))
def test_a_rank_takes_little_more_than_alone(size):
    (alone,) = most_memory(1, "0")
    copied = max(most_memory(size, "0"))
    for taken in most_memory(size, "1"):
        assert taken <= alone + BOUND
        assert taken <= copied + BOUND


# A page of a peer that is mapped once stays mapped, however many there are:
# mapping them anew costs more than the sum.
@pytest.mark.parametrize("size", few([2, 4], "stress", keep=1))
def test_steps_map_nothing_anew(size):
    result = run_ranks(
        rank_memory.page_faults, size, args=(4, 40, 8), deadline=120
    )
    for faults in result.values:
        print(faults)
        # A single tensor of 40 MiB is 640 stretches of 16 pages.
        assert min(faults[4:]) < 200
