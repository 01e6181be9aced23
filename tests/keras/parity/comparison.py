"""Ranks against one process."""

import dataclasses

import numpy as np

from tests.harness import run_ranks
from tests.keras.parity import rank_parity
from tests.keras.parity.cases import BACKEND, Case


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of a case.

    Attributes:
        case: The case.
        difference: Float, the largest relative difference of weights: of each
            variable, the largest difference over the largest value.
        equal: Boolean, whether all ranks have the same bits.
        collectives: How many tensors a rank reduced.
    """

    case: Case
    difference: float
    equal: bool
    collectives: int

    @property
    def faults(self):
        """What is wrong, as texts."""
        found = []
        if not self.equal:
            found.append("ranks differ")
        if not self.difference <= self.case.bound:
            found.append("above the bound")
        expected = self.case.collectives
        if BACKEND != "tensorflow":
            # Others reduce groups of gradients.
            expected = None
        if expected and expected != self.collectives:
            found.append(f"not {expected} collectives")
        return found


def relative_difference(several, one):
    """Returns the largest difference of two lists of arrays."""
    largest = 0.0
    for a, b in zip(several, one, strict=True):
        scale = np.max(np.abs(b), initial=np.finfo("float64").tiny)
        largest = max(largest, np.max(np.abs(a - b), initial=0.0) / scale)
    return float(largest)


def compare(cases, num_ranks=2, deadline=500):
    """Trains on ranks and in one process; returns a `Row` for each case."""
    names = [case.name for case in cases]

    def trained(count):
        result = run_ranks(
            rank_parity.train,
            count,
            args=(names,),
            env={
                "KERAS_RING_TEST_RANKS": str(num_ranks),
                "JAX_ENABLE_X64": "1",
            },
            # Others are not what the prefork server has imported.
            fresh=BACKEND != "tensorflow",
            deadline=deadline,
        )
        return [rank.value for rank in result.ranks]

    (one,), several = trained(1), trained(num_ranks)
    return [
        Row(
            case,
            relative_difference(
                several[0][case.name].weights, one[case.name].weights
            ),
            len({rank[case.name].digest for rank in several}) == 1,
            several[0][case.name].collectives,
        )
        for case in cases
    ]
