"""Jobs one after another in the same processes."""

import socket

import pytest

from tests import tiers
from tests.harness import RanksFailed, run_ranks
from tests.multiprocess.process_sets import rank_generations


def _free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def test_other_sizes_orders_and_sets():
    """A traced function never reduces over a set that has gone."""
    count = tiers.amount(gate=25, long=100)
    seed = tiers.seed(7)
    print("seed", seed)
    result = run_ranks(
        rank_generations.generations,
        rank_generations.RANKS,
        args=(_free_ports(16), count, seed),
        deadline=60 + 2 * count,
    )
    for took_part, early, late in result.values:
        print(took_part, early, late)
        assert took_part > count // 3
        # TensorFlow may start a thread more, late; each job would be many.
        assert late["threads"] <= early["threads"] + 2, (early, late)
        assert late["descriptors"] <= early["descriptors"] + 2, (early, late)
        assert late["segments"] <= early["segments"], (early, late)


def test_ranks_of_other_generations_refuse_each_other():
    with pytest.raises(RanksFailed) as failure:
        run_ranks(rank_generations.of_other_generations, 2)
    for rank in failure.value.result.ranks:
        assert rank.error_type == "StartError"
        assert "KERAS_RING_GENERATION" in rank.error
