"""What the arena's allocator costs a process that trains alone.

    python -m benchmarks.allocator

Trains a model with Keras' `fit` in fresh processes, in turn with TensorFlow's
own allocator and with the one that lets other ranks read tensors where they
lie. Prints, as medians over the rounds: the milliseconds of a step and its CPU
time, the resident memory at its highest, and the ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tabulate import tabulate

from keras_ring.launch.cli.bench_arguments import parse_count

ROOT = Path(__file__).resolve().parents[1]
# Name -> width of the model, images in a batch.
_MODELS = {"residual": (32, 16), "dense": (2048, 16)}
_SIDES = ("TensorFlow's", "arena")
_MEASURES = ("step_ms", "cpu_ms", "resident_mib")
_COLUMNS = ("model", "allocator", "step ms", "CPU ms", "resident MiB")


def run_once(task, deadline):
    """Trains in a process of its own; returns what it has measured.

    Raises:
        SystemExit: If it fails or takes too long.
    """
    path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "CUDA_VISIBLE_DEVICES": "",
    }
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.fitting.alone",
                json.dumps(task),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(
            f"error: {task['model']}: took more than {deadline:g} s"
        ) from None
    if done.returncode != 0:
        raise SystemExit(f"error: {task['model']}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(task, options):
    """Returns the rows of one model: of each side, and their ratio."""
    sides = {arena: [] for arena in (False, True)}
    for number in range(options.rounds):
        # The other side first in every second round.
        for arena in (bool(number % 2), not number % 2):
            print(
                f"{task['model']}: round {number + 1} of {options.rounds},"
                f" {_SIDES[arena]}",
                file=sys.stderr,
                flush=True,
            )
            sides[arena].append(
                run_once({**task, "arena": arena}, options.deadline)
            )
    rows = []
    for arena, results in sides.items():
        medians = [
            statistics.median(result[key] for result in results)
            for key in _MEASURES
        ]
        rows.append(
            (task["model"], _SIDES[arena], *(f"{m:.2f}" for m in medians))
        )
    # Of each round's own pair: the machine may change between rounds.
    ratios = [
        statistics.median(
            ours[key] / own[key]
            for own, ours in zip(sides[False], sides[True], strict=True)
        )
        for key in _MEASURES
    ]
    rows.append((task["model"], "ratio", *(f"{r:.3f}" for r in ratios)))
    return rows


def make_parser():
    """Returns the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("--rounds", type=parse_count, default=7, metavar="N")
    add("--steps", type=parse_count, default=60, metavar="N")
    add(
        "--models",
        type=lambda text: text.split(","),
        default=list(_MODELS),
        metavar="NAME,...",
        help=f"of {', '.join(_MODELS)} (default: all)",
    )
    add("--width", type=parse_count, metavar="N", help="of the models")
    add("--batch", type=parse_count, metavar="N", help="images in a step")
    add(
        "--deadline",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds for one process",
    )
    return parser


def main(argv=None):
    """Measures and prints."""
    options = make_parser().parse_args(argv)
    unknown = set(options.models) - set(_MODELS)
    if unknown:
        raise SystemExit(f"unknown model {unknown}; there are {list(_MODELS)}")
    rows = []
    for model in options.models:
        width, batch = _MODELS[model]
        task = {
            "model": model,
            "width": options.width or width,
            "batch": options.batch or batch,
            "steps": options.steps,
        }
        rows += measure(task, options)
    aligned = ["left", "left", "right", "right", "right"]
    print(f"{options.rounds} rounds of {options.steps} steps, one process")
    print(tabulate(rows, _COLUMNS, disable_numparse=True, colalign=aligned))


if __name__ == "__main__":
    sys.exit(main())
