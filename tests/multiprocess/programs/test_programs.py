"""Random programs of collectives against a NumPy model of the whole group.

`KERAS_RING_TEST_PROGRAMS` is how many, `KERAS_RING_TEST_SEED` which. By hand:

    KERAS_RING_TEST_PROGRAMS=20000 KERAS_RING_TEST_SEED=7 \\
        python -m pytest -s tests/multiprocess/programs --timeout 7200
"""

import os

import pytest

from tests import tiers
from tests.harness import run_ranks
from tests.multiprocess.programs import random_programs, rank_programs
from tests.tiers import pulled

# Ranks, and the host that each pretends to be on. On one host sums are made
# through shared memory, in the order of the ranks; else round a ring.
JOBS = [
    (2, None),
    (3, None),
    (4, None),
    (2, [0, 1]),
    (3, [0, 1, 1]),
    (4, [0, 0, 1, 1]),
]


@pytest.mark.longer("programs")
@pytest.mark.parametrize("num_ranks, hosts", JOBS)
def test_random_programs(num_ranks, hosts):
    usual = 2100 if pulled("programs") else 600
    count = int(os.environ.get("KERAS_RING_TEST_PROGRAMS", usual))
    seed = tiers.seed(1)
    count = -(-count // len(JOBS))
    seed = seed * 100 + JOBS.index((num_ranks, hosts))
    print(f"{count} programs of seed {seed} on {num_ranks} ranks, {hosts}")
    drawn = random_programs.draw_programs(num_ranks, count, seed)
    assert len(drawn) == count
    sets = random_programs.process_sets(num_ranks)
    on_host = hosts or [0] * num_ranks
    # Two numbers have one order.
    exact = [
        len(ranks) <= 2 or len({on_host[rank] for rank in ranks}) == 1
        for ranks in sets
    ]
    result = run_ranks(
        rank_programs.run,
        num_ranks,
        args=(drawn, sets, exact),
        hosts=hosts,
        deadline=60 + 0.5 * count,
    )
    print(result.values)
    for number, ranks in enumerate(sets):
        calls = {result.values[rank][f"set {number}"] for rank in ranks}
        assert len(calls) == 1
        # Not so many programs that a set may have come too short.
        assert min(calls) > count / 20
