"""Gradients of all collectives in all modes. Prints them as a table:

python -m pytest -s tests/multiprocess/collectives/test_gradients.py
"""

import pytest

import keras_ring as kr
from tests.harness import run_ranks
from tests.multiprocess.collectives import collective_table as table
from tests.multiprocess.collectives import rank_gradients
from tests.tiers import few

pytestmark = pytest.mark.skipif(
    not kr.xla_built(), reason="not built for this TensorFlow"
)


# The last is of a process set.
@pytest.mark.parametrize(
    "num_ranks, members",
    few([(2, None), (3, None), (3, [2, 0])], "programs"),
)
def test_gradients_are_right(num_ranks, members):
    result = run_ranks(
        rank_gradients.run,
        num_ranks,
        args=(list(table.GRADIENTS), members),
        deadline=400,
    )
    found = result.values[0]
    which = (
        f"ranks {members} of {num_ranks}" if members else f"{num_ranks} ranks"
    )
    print(f"\nGradients that are right on {which}:")
    print(f"{'':30}" + "".join(f"{m:>10}" for m in table.GRADIENT_MODES))
    for variant, modes in found.items():
        print(f"{variant:30}" + "".join(f"{n:>10}" for n in modes.values()))
    for variant, modes in found.items():
        for mode, count in modes.items():
            works = table.gradient_outcome(variant, mode) == table.YES
            assert (count > 0) == works, (variant, mode)
