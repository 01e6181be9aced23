"""Prints how far metrics of ranks are from those of one process.

Ranks have unequal parts of the data: `python -m tests.keras.metric_table`.
"""

import sys

import numpy as np
from tabulate import tabulate

from tests.harness import run_calls
from tests.keras import rank_exactness

BOUND = 1e-6


def differences(num_ranks):
    """Returns the difference of each metric, over 1 + its value."""
    of_call = run_calls(
        rank_exactness, num_ranks, [("every_metric",)], deadline=400
    )
    results, _ = of_call("every_metric")[0]
    return {
        name: float(
            np.max(np.abs(np.subtract(of_ranks, of_one)) / (1 + np.abs(of_one)))
        )
        for name, (of_ranks, of_one) in results.items()
    }


def main():
    of_ranks = {num_ranks: differences(num_ranks) for num_ranks in (2, 3)}
    rows = []
    for name in of_ranks[2]:
        _, metric, weighted = name.split()
        rows.append(
            (
                metric,
                "weighted" if weighted == "True" else "",
                *(f"{each[name]:.1e}" for each in of_ranks.values()),
            )
        )
    print(
        tabulate(
            rows,
            ["metric", "samples", "2 ranks", "3 ranks"],
            tablefmt="github",
            disable_numparse=True,
            colalign=("left", "left", "right", "right"),
        )
    )
    largest = max(max(each.values()) for each in of_ranks.values())
    print(f"\nlargest difference {largest:.1e}, bound {BOUND:.0e}")
    return int(not largest <= BOUND)


if __name__ == "__main__":
    sys.exit(main())
