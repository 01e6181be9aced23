"""Bits that do not depend on buckets, nor on what links happen to cost."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_deterministic

VARIANTS = [
    {"ALLREDUCE": "one_shot"},
    {"ALLREDUCE": "two_shots", "FUSION_THRESHOLD": "0"},
    {"FUSION_THRESHOLD": "100000", "CYCLE_TIME": "2"},
]


@pytest.mark.long("hosts")
@pytest.mark.parametrize(
    "hosts", [[0, 0, 0], [0, 1, 2], [0, 0, 1, 1, 2]], ids=str
)
def test_the_same_bits_whatever_the_fusion_and_the_algorithm(hosts):
    digests = set()
    for variant in VARIANTS:
        env = {f"KERAS_RING_{name}": value for name, value in variant.items()}
        result = run_ranks(
            rank_deterministic.digest,
            len(hosts),
            hosts=hosts,
            env={"KERAS_RING_DETERMINISTIC": "1", **env},
            deadline=180,
        )
        for of_rank in result.values:
            digests.update(of_rank)
    assert len(digests) == 1
