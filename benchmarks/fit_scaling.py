"""Weak scaling of Keras' `fit`: a job against as many independent processes.

    python -m benchmarks.fit_scaling -np 2

Each process is pinned to a core and TensorFlow has one thread there. The
independent ones run at the same time, so that both sides share the memory and
its caches; all begin each epoch together. The two sides run in turn, round by
round. Prints, as medians over all epochs of all rounds:

- images/s of all processes together, and how far the samples spread (half the
  distance of the 10th and the 90th percentile);
- efficiency: distributed / independent, the median of the rounds' ratios;
- hidden: the share of communication that made no step longer, 1 - (distributed
  step - independent step) / busy, from 0 to 1, where busy is what the counters
  of `kr.metrics()` say of a step: wait_ns + pack_ns + reduce_ns + unpack_ns.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks.comparing import processes
from benchmarks.fitting.figures import make_figures, median_and_spread
from benchmarks.fitting.worker import Result, Task
from keras_ring.launch.cli.bench_arguments import parse_count

ROOT = Path(__file__).resolve().parents[1]
# Name -> width of the model, images in a process's batch: as many as make good
# use of a core. A dense net of 2048 is no slower with 32 images than with 16.
_MODELS = {"residual": (32, 32), "dense": (2048, 128)}
_COLUMNS = (
    "model",
    "gradients MiB",
    "independent images/s",
    "+-",
    "distributed images/s",
    "+-",
    "efficiency",
    "hidden",
)
_ALONE = 0.97
NO_COUNTERS = (
    "hidden: left out, since this build of keras_ring does not count wait_ns, "
    "pack_ns, reduce_ns and unpack_ns in kr.metrics()"
)


def run_once(task, num_ranks, deadline):
    """Runs one side; returns each process's `Result`.

    Raises:
        SystemExit: If a process fails or the deadline passes.
    """
    with tempfile.TemporaryDirectory(prefix="kr-fit-") as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(dataclasses.asdict(task)))
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "CUDA_VISIBLE_DEVICES": "",
        }
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        command = (
            *(sys.executable, "-m", "keras_ring", "run"),
            *("-np", str(num_ranks), "--", sys.executable),
            *("-m", "benchmarks.fitting.worker", name),
        )
        reason = processes.run(command, environment, folder, deadline)
        if reason:
            raise SystemExit(f"error: {task.model}: {reason}")
        texts = [
            (folder / f"result.{rank}.json").read_text()
            for rank in range(num_ranks)
        ]
    return [Result(**json.loads(text)) for text in texts]


def measure(task, options):
    """Returns the `Figures` of one model."""
    sides = {False: [], True: []}
    for number in range(options.rounds):
        # The other side first in every second round.
        for distributed in (bool(number % 2), not number % 2):
            side = "distributed" if distributed else "independent"
            print(
                f"{task.model}: round {number + 1} of {options.rounds}, {side}",
                file=sys.stderr,
                flush=True,
            )
            own = dataclasses.replace(task, distributed=distributed)
            sides[distributed].append(
                run_once(own, options.np, options.deadline)
            )
    return make_figures(task, sides[False], sides[True])


def as_text(all_figures):
    """Returns the table for a terminal."""
    rows = [
        (
            figures.model,
            f"{figures.gradient_bytes / 2**20:.1f}",
            *_rate(figures.independent),
            *_rate(figures.distributed),
            f"{figures.efficiency:.3f}",
            "-" if figures.hidden is None else f"{figures.hidden:.0%}",
        )
        for figures in all_figures
    ]
    aligned = ["left", *["right"] * (len(_COLUMNS) - 1)]
    lines = [tabulate(rows, _COLUMNS, disable_numparse=True, colalign=aligned)]
    lines += [
        f"note: {figures.model}: the independent processes had "
        f"{figures.core_share:.0%} of their cores; something else ran there, "
        "and the figures are not to be trusted"
        for figures in all_figures
        if figures.core_share < _ALONE
    ]
    if any(figures.hidden is None for figures in all_figures):
        lines.append(NO_COUNTERS)
    return "\n".join(lines)


def _rate(rounds):
    median, spread = median_and_spread(rounds)
    return f"{median:.1f}", f"{spread:.1%}"


def make_parser():
    """Returns the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("-np", type=parse_count, default=2, metavar="N", help="processes")
    add("--rounds", type=parse_count, default=4, metavar="N")
    add("--steps", type=parse_count, default=40, metavar="N")
    add("--epochs", type=parse_count, default=3, metavar="N")
    add(
        "--models",
        type=lambda text: text.split(","),
        default=list(_MODELS),
        metavar="NAME,...",
        help=f"of {', '.join(_MODELS)} (default: all)",
    )
    add("--width", type=parse_count, metavar="N", help="of the models")
    add("--batch", type=parse_count, metavar="N", help="images of a process")
    add(
        "--deadline",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds for one side of a round",
    )
    return parser


def main(argv=None):
    """Measures and prints."""
    options = make_parser().parse_args(argv)
    unknown = set(options.models) - set(_MODELS)
    if unknown:
        raise SystemExit(f"unknown model {unknown}; there are {list(_MODELS)}")
    cores = sorted(os.sched_getaffinity(0))
    if options.np > len(cores):
        print(
            f"note: {options.np} processes share {len(cores)} cores",
            file=sys.stderr,
        )
    all_figures = []
    for model in options.models:
        width, batch = _MODELS[model]
        task = Task(
            distributed=False,
            model=model,
            width=options.width or width,
            batch=options.batch or batch,
            steps=options.steps,
            epochs=options.epochs,
            cores=cores,
            patience=options.deadline,
        )
        all_figures.append(measure(task, options))
    print(
        f"{options.np} processes on {len(cores)} cores, {options.rounds} "
        f"rounds of {options.epochs} epochs of {options.steps} steps"
    )
    print(as_text(all_figures))


if __name__ == "__main__":
    sys.exit(main())
