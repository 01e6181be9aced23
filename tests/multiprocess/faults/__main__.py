"""Runs the table of faults: `python -m tests.multiprocess.faults`.

A line for each case that went wrong, and a table at the end. Without `--all`
each fault happens at each moment in each mode, on both collectives, to one
rank of a job of 2 to 8 ranks, drawn at random.
"""

import argparse
import os
import statistics
import sys
import time
from collections import defaultdict

# Before anything is imported that reads them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["KERAS_RING_ZERO_COPY"] = "0"
os.environ["KERAS_RING_LOG_LEVEL"] = "error"

from tests.multiprocess.faults import catalogue
from tests.multiprocess.faults.driver import Verdict, run_case


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="of the cases, the first")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORDS",
        help="cases with all of these words, with '+' between them",
    )
    parser.add_argument("--largest", type=int, default=8, help="job")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _table(verdicts: list[Verdict]) -> str:
    rows = defaultdict(list)
    for verdict in verdicts:
        rows[verdict.case.fault, verdict.case.moment].append(verdict)
    lines = [
        "| fault | moment | cases | survivors | median s | max s | faults |"
        " hung | left |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (fault, moment), group in sorted(rows.items()):
        seconds = [s for verdict in group for s in verdict.seconds]
        times = "- | -"
        if seconds:
            times = f"{statistics.median(seconds):.2f} | {max(seconds):.2f}"
        wrong = sum(bool(verdict.problems) for verdict in group)
        hung = sum(verdict.hung for verdict in group)
        left = sum(verdict.leftovers for verdict in group)
        lines.append(
            f"| {fault} | {moment} | {len(group)} | {len(seconds)} | {times} |"
            f" {wrong} | {hung} | {left} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Returns 1 if any case went wrong."""
    arguments = _arguments()
    cases = catalogue.cases(arguments.seed, arguments.all, arguments.largest)
    if arguments.only:
        wanted = [words.split("+") for words in arguments.only]
        cases = [
            case
            for case in cases
            if any(all(w in str(case) for w in words) for words in wanted)
        ]
    cases = cases[: arguments.count]
    print(f"{len(cases)} cases of seed {arguments.seed}", flush=True)
    end = float("inf")
    if arguments.minutes:
        end = time.monotonic() + 60 * arguments.minutes
    verdicts = []
    for case in cases:
        if time.monotonic() > end:
            break
        verdict = run_case(case)
        verdicts.append(verdict)
        if verdict.problems or arguments.verbose:
            print(f"{case}:", *verdict.problems, sep="\n    ")
            for number, text in verdict.errors.items():
                print(f"    ({number}) {text[:400]}")
        sys.stdout.flush()
    print(_table(verdicts))
    wrong = [verdict for verdict in verdicts if verdict.problems]
    print(f"{len(verdicts)} cases, {len(wrong)} with faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
