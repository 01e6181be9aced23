"""Times one step's reductions inside a `tf.function`, case by case.

    keras-ring run -np 2 -- python benchmarks/step.py

Every result is checked. Prints a table on rank 0: the time of a step as its
slowest rank saw it (median and 10th and 90th percentile), the bytes that moved
per second of it, and the control traffic of a rank in one step.

`busbw` is `algbw` * 2 (n - 1) / n, as nccl-tests define it: what each link
must carry whatever the algorithm.
"""

import time

import cases
import numpy as np
import tensorflow as tf
from absl import app, flags

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("steps", 30, "Steps measured per case.", lower_bound=3)
flags.DEFINE_string("only", "", "Part of the names of the cases to run.")

_HEADER = (
    f"{'case':24} {'tensors':>7} {'MiB':>8} {'p10 ms':>9} {'median':>9} "
    f"{'p90':>9} {'busbw GB/s':>10} {'control B':>9}"
)


def measure(name, shapes, steps):
    """Runs one case; returns a line for the table."""
    rank, size = kr.rank(), kr.size()
    tensors = [tf.fill(shape, float(rank + 1)) for shape in shapes]

    @tf.function
    def step():
        return [
            kr.allreduce(tensor, name=f"{name}/{i}")
            for i, tensor in reversed(list(enumerate(tensors)))
        ]

    for _ in range(5):
        results = step()
    for result in results:
        np.testing.assert_allclose(result.numpy(), (size + 1) / 2)
    own = np.empty(steps)
    control = 0
    for i in range(steps):
        kr.barrier(name="start")
        before = kr.metrics()
        began = time.perf_counter()
        step()
        own[i] = time.perf_counter() - began
        after = kr.metrics()
        control = max(
            after[key] - before[key]
            for key in ("control_bytes_sent", "control_bytes_received")
        )
    slowest = kr.allreduce(own, kr.Max, name="times").numpy() * 1e3
    low, median, high = np.percentile(slowest, [10, 50, 90])
    num_bytes = 4 * sum(int(np.prod(shape)) for shape in shapes)
    bandwidth = num_bytes / median / 1e6 * 2 * (size - 1) / size
    return (
        f"{name:24} {len(shapes):7} {num_bytes / 2**20:8.2f} {low:9.3f} "
        f"{median:9.3f} {high:9.3f} {bandwidth:10.3f} {control:9}"
    )


def main(argv):
    """Runs the cases."""
    del argv
    kr.init()
    if kr.rank() == 0:
        print(f"{kr.size()} ranks, float32, Average\n{_HEADER}", flush=True)
    for name, shapes in cases.all_cases().items():
        if FLAGS.only in name:
            line = measure(name, shapes, FLAGS.steps)
            if kr.rank() == 0:
                print(line, flush=True)


if __name__ == "__main__":
    app.run(main)
