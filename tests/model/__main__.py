"""Explores all cases and says how many states they have.

With --large, those too that take minutes; with --trace NAME, the way to the
seeded fault of that name.
"""

import argparse
import sys

from tests.model.catalogue import CASES, SEEDED, case
from tests.model.explorer import explore


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--trace", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.trace:
        return trace(arguments.trace)
    bad = 0
    total = 0.0
    print(f"{'case':50} {'states':>8} {'steps':>9} {'seconds':>8}")
    for one in CASES:
        if one.large and not arguments.large:
            continue
        report = explore(one.model())
        total += report.seconds
        print(
            f"{one.name:50} {report.states:8} {report.steps:9} "
            f"{report.seconds:8.1f}",
            flush=True,
        )
        if report.fault:
            bad += 1
            print(report.text())
    print(f"\n{'seeded fault':32} {'trace':>6} {'states':>8}  found")
    for seeded in SEEDED:
        report = explore(case(seeded.case).model(seeded.faults))
        total += report.seconds
        bad += report.fault is None
        print(
            f"{seeded.name:32} {len(report.trace):6} {report.states:8}  "
            f"{report.fault}",
            flush=True,
        )
    print(f"\n{total:.0f} s, {bad} problems")
    return int(bad > 0)


def trace(name):
    seeded = next(s for s in SEEDED if s.name == name)
    print(explore(case(seeded.case).model(seeded.faults)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
