"""What a timeline costs a step of collectives, while it is recorded.

    keras-ring run -np 2 -- python -m benchmarks.timeline_cost

The gradients of a model are reduced, one collective for each, with a timeline
and without, in turn, so that both meet the same machine. The program does
nothing else, so a step is as short as it can be. Prints, for each set of
tensors, the medians of rank 0 in milliseconds, and the median of the ratios of
neighbours.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import tensorflow as tf
from tabulate import tabulate

import keras_ring as kr
from keras_ring.bench import shapes

SETS = {
    "resnet50": shapes.resnet50,
    "1000 x 1 KiB": shapes.many_small,
}


def step_of(tensors):
    """Returns a function that reduces the tensors."""

    @tf.function
    def step():
        return [
            kr.allreduce(tensor, name=f"t{number}")
            for number, tensor in enumerate(tensors)
        ]

    return step


def seconds(step, steps):
    """Returns what a step takes, of some, on this rank."""
    kr.barrier(name="begin")
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


def measure(step, pairs, steps, path):
    """Returns times of a step without and with a timeline, in pairs."""
    off, on = [], []
    for pair in range(pairs + 1):
        # Whoever is first, is so in half of the pairs.
        for recorded in (False, True) if pair % 2 else (True, False):
            if recorded:
                kr.start_timeline(path)
            taken = seconds(step, steps)
            if recorded:
                kr.barrier(name="end")
                kr.stop_timeline()
            if pair:
                (on if recorded else off).append(taken)
    return off, on


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100, help="of each")
    arguments = parser.parse_args()
    kr.init()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in SETS.items():
            step = step_of([tf.ones(shape) for shape in make()])
            path = Path(folder) / "t.trace"
            off, on = measure(step, arguments.pairs, arguments.steps, path)
            ratios = [b / a for a, b in zip(off, on, strict=True)]
            rows.append(
                [
                    name,
                    statistics.median(off) * 1e3,
                    statistics.median(on) * 1e3,
                    statistics.median(ratios),
                ]
            )
    if kr.rank() == 0:
        headers = ["tensors", "off, ms", "on, ms", "on / off"]
        print(tabulate(rows, headers, floatfmt=(".1f", ".2f", ".2f", ".3f")))


if __name__ == "__main__":
    main()
