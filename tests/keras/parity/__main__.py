"""Prints the parity table. With words, the cases that have one of them."""

import argparse
import sys

from tabulate import tabulate

from tests.keras.parity.cases import CASES
from tests.keras.parity.comparison import compare
from tests.keras.parity.models import BACKEND, STEPS


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.keras.parity")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    words = [word.lower() for word in arguments.words]
    cases = [
        case
        for case in CASES
        if not words or any(word in case.name.lower() for word in words)
    ]
    rows = compare(cases, arguments.ranks)
    print(
        f"{BACKEND}, {arguments.ranks} ranks against one process on the whole "
        f"batch: the largest relative difference of weights after {STEPS} "
        "steps\n"
    )
    print(
        tabulate(
            [
                (
                    row.case.name,
                    row.case.policy,
                    f"{row.difference:.1e}",
                    f"{row.case.bound:.1e}",
                    row.collectives,
                    ", ".join(row.faults) or "ok",
                )
                for row in rows
            ],
            ["feature", "policy", "difference", "bound", "reduced", ""],
            tablefmt="github",
            disable_numparse=True,
            colalign=("left", "left", "right", "right", "right", "left"),
        )
    )
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    sys.exit(main())
