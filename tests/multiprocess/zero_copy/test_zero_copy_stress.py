"""Many threads that allocate and reduce: nothing is overwritten or lost.

`KERAS_RING_STRESS_SECONDS` makes it longer.
"""

import os

import pytest

from tests import tiers
from tests.harness import run_ranks
from tests.multiprocess.zero_copy import rank_zero_copy_stress
from tests.tiers import few

# MiB that four threads may have at once: 48 that are kept, and of the largest
# tensor, of 64, the parts that it is made of and those that it is checked with.
_MOST = 4 * (48 + 6 * 64)
_LONG = 120
SECONDS = float(
    os.environ.get(
        "KERAS_RING_STRESS_SECONDS",
        tiers.amount(20 if tiers.pulled("stress") else 5, 600),
    )
)


@pytest.mark.longer("stress")
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("size", few([2, 3], "stress"))
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
        assert value["collectives"] > SECONDS
        assert value["allocations"] > 5 * SECONDS
        for key in ("held", "memory"):
            assert 0 < value[key][3] <= _MOST, key
            # Flat: the last quarter needs little more than those before. In
            # less time the largest tensors have come once or not at all.
            if SECONDS >= _LONG:
                assert value[key][3] <= 1.5 * max(value[key][:3]), key
        # Given back: a small tensor is all that there is in the arena, and
        # beside it programs that were compiled.
        held, memory = value["after"]
        assert held <= 16
        assert memory <= 2 * 64 + 16 + 400
