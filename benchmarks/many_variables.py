"""What gradients of many small variables cost, one op each and sharing ops.

    keras-ring run -np 2 -- python -m benchmarks.many_variables

In turn, step by step: gradients alone, a tape whose `groups` is the number of
variables, which is an op for each, the tape's default, and groups of other
numbers of variables. Prints the median ms of the steps of rank 0.
"""

import argparse
import time

import numpy as np
import tensorflow as tf
from tabulate import tabulate

import keras_ring as kr
from keras_ring.launch.cli.bench_arguments import parse_bytes, parse_count

_WARMUP = 5
_NO_TAPE = "gradients alone"


def variables_of(count, num_bytes):
    """Returns variables of very different sizes, together about `num_bytes`."""
    weights = np.random.default_rng(0).lognormal(0.0, 2.0, count)
    sizes = np.maximum(1, num_bytes / 4 * weights / weights.sum()).astype(int)
    return [
        tf.Variable(tf.ones([size]), name=f"v{i}")
        for i, size in enumerate(sizes)
    ]


def step_of(variables, groups):
    """Returns a compiled step; without `groups` of the gradients alone."""

    @tf.function
    def step(x):
        tape = tf.GradientTape()
        if groups != _NO_TAPE:
            tape = kr.DistributedGradientTape(tape, groups=groups)
        with tape:
            loss = tf.add_n([tf.reduce_sum(v * x) for v in variables])
        gradients = tape.gradient(loss, variables)
        # One result that needs them all, as an optimizer does.
        return tf.add_n([g[0] for g in gradients])

    return step


def measure(steps, iterations):
    """Returns name -> median ms, of steps that take turns."""
    times = {name: [] for name in steps}
    x = tf.constant(1.0)
    for at in range(_WARMUP + iterations):
        for name, step in steps.items():
            start = time.perf_counter()
            step(x).numpy()
            if at >= _WARMUP:
                times[name].append(time.perf_counter() - start)
    return {name: 1e3 * float(np.median(t)) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--variables", type=parse_count, default=3000, metavar="N"
    )
    parser.add_argument("--bytes", type=parse_bytes, default="72MiB")
    parser.add_argument(
        "--iterations", type=parse_count, default=50, metavar="N"
    )
    parser.add_argument(
        "--parts",
        default="8,16,32,64",
        metavar="N[,N...]",
        help="variables that share an op (default: %(default)s)",
    )
    options = parser.parse_args()
    kr.init()
    # Each step is a function of its own: no retracing.
    tf.get_logger().setLevel("ERROR")
    variables = variables_of(options.variables, options.bytes)
    count = len(variables)
    steps = {
        _NO_TAPE: step_of(variables, _NO_TAPE),
        "an op for each": step_of(variables, count),
        "default": step_of(variables, None),
    }
    for part in options.parts.split(","):
        steps[f"{part} an op"] = step_of(variables, -(-count // int(part)))
    found = measure(steps, options.iterations)
    if kr.rank() == 0:
        rows = [(name, f"{ms:.1f}") for name, ms in found.items()]
        print(tabulate(rows, headers=[f"{count} variables", "ms"]))


if __name__ == "__main__":
    main()
