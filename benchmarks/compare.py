"""Compares keras_ring with whatever else of its kind is installed.

    python -m benchmarks.compare
    python -m benchmarks.compare --mpi-python=mpi/bin/python \
        --variant=unfused:KERAS_RING_FUSION_THRESHOLD=0

All ranks are on this host. Every system runs in turn, round by round, with the
same cases and the same loop around them (`keras_ring/bench`): keras_ring with
its defaults and with the environment of each `--variant`, the floor without
a collective, plain MPI, torch.distributed, Horovod, tf.distribute. What is not
installed is skipped, what fails is reported, and neither ends the comparison.

Prints a table; `benchmarks/out/report.html` has plots as well, and
`results.json` beside it what they are made from (`--replay` makes them anew).
mpi4py comes from a Python of its own, since an environment has one MPI; Open
MPI wants more options where there are more ranks than cores
(`--mpirun-flags=--oversubscribe`) and variables where root runs it.
"""

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks.comparing import (
    machine,
    plan,
    report,
    rounds,
    table,
    yardsticks,
)
from benchmarks.comparing.comparison import Comparison, merge
from keras_ring.bench.cases import ladder
from keras_ring.bench.measure import Budget
from keras_ring.launch.cli.bench_arguments import (
    parse_bytes,
    parse_count,
    parse_counts,
)

_OUT = Path(__file__).resolve().parent / "out"
_SECTIONS = ("ladder", "steps", "sweep")


def _words(text):
    return text.split(",")


def _variant(text):
    try:
        return plan.parse_variant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def make_parser():
    """Returns the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("-np", type=parse_count, default=2, metavar="N", help="ranks")
    add("--rounds", type=parse_count, default=3, metavar="N")
    add("--systems", type=_words, metavar="NAME,...", help="default: all")
    add(
        "--variant",
        dest="variants",
        type=_variant,
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE,...",
        help="keras_ring with these variables too (may be repeated)",
    )
    add("--mpi-python", metavar="PATH", help="a Python that has mpi4py")
    add("--mpirun-flags", type=shlex.split, default=[], metavar="FLAGS")
    add(
        "--sections",
        type=_words,
        default=_SECTIONS,
        metavar="NAME,...",
        help=f"of {', '.join(_SECTIONS)} (default: all)",
    )
    add("--min-bytes", type=parse_bytes, default="4", metavar="SIZE")
    add("--max-bytes", type=parse_bytes, default="64MiB", metavar="SIZE")
    add("--factor", type=parse_count, default=8, metavar="F")
    add("--sweep-bytes", type=parse_bytes, default="16MiB", metavar="SIZE")
    add(
        "--sweep-tensors",
        type=parse_counts,
        default="1,10,100,1000",
        metavar="N,...",
    )
    add("--iterations", type=parse_count, metavar="N", help="of each case")
    add(
        "--seconds",
        type=float,
        default=1.0,
        help="for each case, without --iterations",
    )
    add("--warmup", type=parse_count, default=5, metavar="N")
    add(
        "--deadline",
        type=float,
        default=600.0,
        help="seconds for one system and round",
    )
    add("--yardstick-bytes", type=parse_bytes, default="128MiB")
    add("--out", type=Path, default=_OUT, metavar="FOLDER")
    add("--replay", type=Path, metavar="FILE", help="a results.json")
    return parser


def compare(options):
    """Runs the comparison and returns its outcome."""
    plans = plan.make_plans(
        options.np, options.variants, options.mpi_python, options.mpirun_flags
    )
    names = [each.name for each in plans]
    unknown = set(options.systems or ()) - set(names)
    if unknown:
        raise SystemExit(f"unknown system {unknown}; there are {names}")
    if options.systems:
        plans = [each for each in plans if each.name in options.systems]
    runnable = [each for each in plans if not each.missing]
    sections = plan.make_sections(
        options.sections,
        sizes=ladder(options.min_bytes, options.max_bytes, options.factor),
        sweep_bytes=options.sweep_bytes,
        sweep_tensors=options.sweep_tensors,
    )
    facts = {**machine.facts(), "ranks": options.np, "rounds": options.rounds}
    measured = yardsticks.measure(options.np, options.yardstick_bytes)
    budget = Budget(
        iterations=options.iterations,
        seconds=options.seconds,
        warmup=options.warmup,
    )
    records, failures = rounds.run_rounds(
        runnable,
        sections,
        budget,
        rounds=options.rounds,
        deadline=options.deadline,
    )
    return Comparison(
        facts=facts,
        yardsticks=measured,
        sections={
            name: [case.name for case in cases]
            for name, cases in sections.items()
        },
        systems=[each.name for each in runnable],
        records=merge(records),
        failures=failures,
        skipped=[(each.name, each.missing) for each in plans if each.missing],
    )


def main(argv=None):
    """Compares, prints and writes; returns 1 if keras_ring itself failed."""
    options = make_parser().parse_args(argv)
    if options.replay:
        comparison = Comparison.from_json(options.replay.read_text())
    else:
        comparison = compare(options)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(comparison.to_json())
    page = options.out / "report.html"
    page.write_text(report.as_html(comparison))
    print(table.as_text(comparison))
    print(f"report: {page}")
    failed = {name for name, _ in comparison.failures}
    return 1 if "keras_ring" in failed else 0


if __name__ == "__main__":
    sys.exit(main())
