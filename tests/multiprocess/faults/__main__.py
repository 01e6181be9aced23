"""Runs the table of faults: `python -m tests.multiprocess.faults`.

A line for each case that went wrong, and tables at the end. Without `--all`
each fault happens at each moment in each mode, on both collectives, to one
rank of a job of 2 to 8 ranks, drawn at random.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

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
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="to add them to; the tables are of all in it",
    )
    parser.add_argument("--largest", type=int, default=8, help="job")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _row(verdict: Verdict) -> dict[str, Any]:
    """Returns what the tables need of a verdict."""
    case = verdict.case
    return {
        "what": f"{case.fault} | {case.moment}",
        "how": f"{case.mode} | {case.collective}",
        "who": f"{case.victim} | {case.size}",
        "seconds": verdict.seconds,
        "wrong": bool(verdict.problems),
        "hung": verdict.hung,
        "left": verdict.leftovers,
    }


def _table(rows: list[dict[str, Any]], key: str, heads: str) -> str:
    groups = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    lines = [
        f"| {heads} | cases | survivors | median s | max s | wrong | hung |"
        " left |",
        "|---" * 9 + "|",
    ]
    for name, group in sorted(groups.items()):
        seconds = [s for row in group for s in row["seconds"]]
        times = "- | -"
        if seconds:
            times = f"{statistics.median(seconds):.2f} | {max(seconds):.2f}"
        wrong, hung, left = (
            sum(row[what] for row in group)
            for what in ("wrong", "hung", "left")
        )
        lines.append(
            f"| {name} | {len(group)} | {len(seconds)} | {times} |"
            f" {wrong} | {hung} | {left} |"
        )
    return "\n".join(lines)


def _tables(rows: list[dict[str, Any]]) -> str:
    return "\n\n".join(
        _table(rows, key, heads)
        for key, heads in (
            ("what", "fault | moment"),
            ("how", "mode | collective"),
            ("who", "rank | of"),
        )
    )


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
    rows = []
    for case in cases:
        if time.monotonic() > end:
            break
        verdict = run_case(case)
        rows.append(_row(verdict))
        if arguments.results:
            with arguments.results.open("a") as results:
                print(json.dumps(rows[-1]), file=results)
        if verdict.problems or arguments.verbose:
            print(f"{case}:", *verdict.problems, sep="\n    ")
            for number, text in verdict.errors.items():
                print(f"    ({number}) {text[:400]}")
        sys.stdout.flush()
    wrong = sum(row["wrong"] for row in rows)
    told = rows
    if arguments.results:
        lines = arguments.results.read_text().splitlines()
        told = [json.loads(line) for line in lines]
    print(_tables(told))
    print(f"{len(rows)} cases, {wrong} with faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
