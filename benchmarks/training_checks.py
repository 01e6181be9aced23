"""What it costs to compare what ranks train, again and again.

    keras-ring run -np 2 -- python -m benchmarks.training_checks

Trains a model of many small variables by a compiled step of its own, and notes
how long each comparison of what ranks train takes
(`keras/optimizer/divergence.py`).
Prints, of rank 0: steps, seconds, comparisons, milliseconds of the first and of
one after it, and their share of the time: with the first step, which traces and
compares all, from then on, and of the second half of the steps. A rank waits in
a comparison for those that are behind, as it would in the next step; the share
of the CPU seconds of its process has no waiting, and is the one to look at
where something else runs.
"""

import argparse
import statistics
import time
from typing import NamedTuple

import keras
import tensorflow as tf
from tabulate import tabulate

import keras_ring as kr
from keras_ring.keras.optimizer import divergence
from keras_ring.launch.cli.bench_arguments import parse_count

_WARMUP = 10


class _Time(NamedTuple):
    """A point in time.

    Args:
        clock: In seconds.
        cpu: The CPU seconds that the process has taken.
    """

    clock: float
    cpu: float

    @classmethod
    def now(cls):
        """Returns the one that it is."""
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other):
        return _Time(self.clock - other.clock, self.cpu - other.cpu)


class _Noted:
    """Takes the times of comparisons, from now on."""

    def __init__(self):
        self.began = []
        self.took = []
        self._look = divergence._Training._look
        noted = self

        def look(training, *args, **kwargs):
            began = _Time.now()
            result = noted._look(training, *args, **kwargs)
            noted.began.append(began)
            noted.took.append(_Time.now() - began)
            return result

        divergence._Training._look = look

    def end(self):
        """Puts everything back."""
        divergence._Training._look = self._look

    def between(self, since, until):
        """Returns what comparisons took, one by one."""
        return [
            took
            for began, took in zip(self.began, self.took, strict=True)
            if since.clock <= began.clock < until.clock
        ]

    def share(self, since, until, what="clock"):
        """Returns the share of a time that comparisons took."""
        spent = sum(getattr(each, what) for each in self.between(since, until))
        return f"{spent / getattr(until - since, what):.2%}"


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
        began = _Time.now()
        step(x).numpy()  # traces
        traced = _Time.now()
        for _ in range(_WARMUP):
            step(x).numpy()
        took = (_Time.now() - traced).clock / _WARMUP
        steps = kr.broadcast_object(int(seconds / took) + 1, name="steps")
        for number in range(steps):
            step(x).numpy()
            if number == steps // 2:
                middle = _Time.now()
        ended = _Time.now()
    finally:
        noted.end()
    (first,) = noted.between(began, traced)
    others = noted.between(traced, ended)
    steps += _WARMUP
    return {
        "variables": num_variables,
        "steps": steps,
        "seconds": round((ended - traced).clock, 1),
        "ms a step": round(1e3 * (ended - traced).clock / steps, 2),
        "comparisons": len(others),
        "ms of the first": round(1e3 * first.clock, 1),
        "of others": round(
            1e3 * statistics.median(each.clock for each in others), 2
        ),
        "share": noted.share(began, ended),
        "after it": noted.share(traced, ended),
        "2nd half": noted.share(middle, ended),
        "share of CPU": noted.share(began, ended, "cpu"),
        "after it, of CPU": noted.share(traced, ended, "cpu"),
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
