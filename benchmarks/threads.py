"""How many threads a rank should have: steps of a small convolutional net.

    python -m benchmarks.threads -np 2

Trains on all ranks at once: in turn with the threads that TensorFlow chooses,
with those that `keras-ring run` sets, with ranks kept on cores of their own,
and with numbers given by hand, round by round. Prints the median and the
fastest of the rounds' times of a step, in ms, the CPU time that rank 0 spends
on a step, which other programs on the machine change less, and the ratio of
the fastest to the first row's.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
_VARIABLES = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
)
_MARK = "ms per step:"


def _by_hand(intra, inter):
    values = (intra, inter, intra)
    words = [f"--env={k}={v}" for k, v in zip(_VARIABLES, values, strict=True)]
    return f"by hand: {intra} in an op, {inter} between", words


def settings(num_ranks):
    """Returns name -> options of `keras-ring run`."""
    cores = len(os.sched_getaffinity(0))
    found = {
        "TensorFlow's choice (--threads 0)": ["--threads=0"],
        "default": [],
    }
    if num_ranks <= cores:
        found["default, --bind"] = ["--bind"]
    share = max(1, cores // num_ranks)
    for intra, inter in ((1, 1), (share, 2), (share, cores), (cores, 1)):
        name, words = _by_hand(intra, inter)
        found[name] = words
    return found


def train(steps, width):
    """Trains as a rank; rank 0 prints the time of a step."""
    import keras
    import numpy as np

    import keras_ring as kr

    kr.init()
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(width, 3, activation="relu"),
            layers.Conv2D(width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * width, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64),
            layers.Dense(10),
        ]
    )
    model.compile(
        kr.DistributedOptimizer("sgd"),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    size = (32 * steps, 32, 32, 3)
    images = np.random.default_rng(0).normal(size=size).astype("float32")
    labels = np.zeros(len(images), "int32")
    options = {
        "batch_size": 32,
        "verbose": 0,
        "callbacks": [kr.callbacks.BroadcastGlobalVariablesCallback(0)],
    }
    model.fit(images[:64], labels[:64], **options)
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(images, labels, **options)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    if kr.rank() == 0:
        print(_MARK, wall / steps * 1e3, cpu / steps * 1e3, flush=True)


def run_once(num_ranks, words, steps, width):
    """Returns the time of a step and rank 0's CPU time of it, in ms."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _VARIABLES
    }
    path = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run"),
            *("-np", str(num_ranks), *words, "--", sys.executable),
            *("-m", "benchmarks.threads"),
            *("--worker", f"--steps={steps}", f"--width={width}"),
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"error: {done.stderr}")
    wall, cpu = done.stdout.partition(_MARK)[2].split()[:2]
    return float(wall), float(cpu)


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-np", type=int, default=2, help="number of ranks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="in a round")
    parser.add_argument("--width", type=int, default=32, help="of the net")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="settings with this word"
    )
    parser.add_argument("--worker", action="store_true", help="be a rank")
    arguments = parser.parse_args()
    if arguments.worker:
        return train(arguments.steps, arguments.width)
    chosen = {
        name: words
        for name, words in settings(arguments.np).items()
        if arguments.only in name
    }
    if not chosen:
        parser.error(f"no setting has {arguments.only!r}")
    times = {name: [] for name in chosen}
    for _ in range(arguments.rounds):
        for name, words in chosen.items():
            times[name].append(
                run_once(arguments.np, words, arguments.steps, arguments.width)
            )
    fastest = {name: min(wall for wall, _ in of) for name, of in times.items()}
    first = next(iter(fastest.values()))
    rows = [
        (
            name,
            f"{statistics.median(wall for wall, _ in of):.1f}",
            f"{fastest[name]:.1f}",
            f"{statistics.median(cpu for _, cpu in of):.1f}",
            f"{fastest[name] / first:.2f}",
        )
        for name, of in times.items()
    ]
    cores = len(os.sched_getaffinity(0))
    print(f"{arguments.np} ranks on {cores} cores")
    header = ("threads", "median ms", "fastest ms", "CPU ms", "ratio")
    print(tabulate(rows, header))
    return 0


if __name__ == "__main__":
    sys.exit(main())
