"""What it costs to compare what ranks train, again and again.

    keras-ring run -np 2 -- python -m benchmarks.training_checks

Trains a model of many small variables by a compiled step of its own, and notes
how long each comparison of what ranks train takes (`_training/divergence.py`).
Prints, of rank 0: steps, seconds, comparisons, milliseconds of one, their share
of the time, and that of the second half of the steps. The first comparisons are
free: they come after 1, 2, 4, ... steps, until they have taken a second.
"""

import argparse
import statistics
import time

import keras
import tensorflow as tf
from tabulate import tabulate

import keras_ring as kr
from keras_ring._training import divergence
from keras_ring.cli.bench_arguments import parse_count

_WARMUP = 10


class _Noted:
    """Takes the times of comparisons, from now on."""

    def __init__(self):
        self.began = []
        self.seconds = []
        self._compare = divergence._Training._compare
        noted = self

        def compare(training, *args, **kwargs):
            began = time.perf_counter()
            result = noted._compare(training, *args, **kwargs)
            noted.began.append(began)
            noted.seconds.append(time.perf_counter() - began)
            return result

        divergence._Training._compare = compare

    def end(self):
        """Puts everything back."""
        divergence._Training._compare = self._compare

    def share(self, since, until):
        """Returns the share of a time that comparisons took."""
        spent = sum(
            seconds
            for began, seconds in zip(self.began, self.seconds, strict=True)
            if since <= began < until
        )
        return spent / (until - since)


def measure(num_variables, values, seconds):
    """Returns a row of the table."""
    variables = [
        tf.Variable(tf.ones([values]), name=f"v{i}")
        for i in range(num_variables)
    ]
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(1e-3, momentum=0.9)
    )

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(v * x) for v in variables])
        gradients = tape.gradient(loss, variables)
        optimizer.apply(gradients, variables)
        return loss

    x = tf.constant(0.5)
    noted = _Noted()
    try:
        step(x).numpy()  # traces
        began = time.perf_counter()
        for _ in range(_WARMUP):
            step(x).numpy()
        took = (time.perf_counter() - began) / _WARMUP
        steps = kr.broadcast_object(int(seconds / took) + 1, name="steps")
        began = time.perf_counter()
        for number in range(steps):
            step(x).numpy()
            if number == steps // 2:
                middle = time.perf_counter()
        ended = time.perf_counter()
    finally:
        noted.end()
    return {
        "variables": num_variables,
        "steps": steps,
        "seconds": round(ended - began, 1),
        "ms a step": round(1e3 * (ended - began) / steps, 2),
        "comparisons": len(noted.seconds),
        "ms a comparison": round(1e3 * statistics.median(noted.seconds), 2),
        "share": f"{noted.share(began, ended):.2%}",
        "share, 2nd half": f"{noted.share(middle, ended):.2%}",
    }


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--variables", type=parse_count, nargs="+", default=[42, 3000]
    )
    parser.add_argument(
        "--values", type=parse_count, default=1000, help="in each variable"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="for each number"
    )
    options = parser.parse_args()
    kr.init()
    rows = [
        measure(count, options.values, options.seconds)
        for count in options.variables
    ]
    if kr.rank() == 0:
        print(tabulate(rows, headers="keys"))


if __name__ == "__main__":
    main()
