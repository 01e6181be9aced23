"""Many threads that allocate and reduce: nothing is overwritten or lost.

`KERAS_RING_STRESS_SECONDS` makes it longer.
"""

import os

import pytest

from tests.harness import run_ranks
from tests.multiprocess import rank_zero_copy_stress

SECONDS = float(os.environ.get("KERAS_RING_STRESS_SECONDS", "20"))


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("size", [2, 3])
def test_stress(size):
    result = run_ranks(
        rank_zero_copy_stress.stress,
        size,
        args=(SECONDS,),
        deadline=SECONDS + 240,
        env={"KERAS_RING_ZERO_COPY": "1"},
    )
    for rank, value in enumerate(result.values):
        print(f"rank {rank} of {size}: {value}")
    for value in result.values:
        assert value["collectives"] > 20
        assert value["allocations"] > 100
        # Flat: the last quarter needs no more than those before.
        early, late = value["held"][:3], value["held"][3]
        assert 0 < late <= 1.25 * max(early)
        assert value["resident"][3] <= 1.25 * max(value["resident"][:3])
        # Given back: a small tensor is all that there is.
        held, _ = value["after"]
        assert held <= 16
