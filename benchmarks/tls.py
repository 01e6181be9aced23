"""What TLS costs: allreduce over the ring of TCP connections, without and with.

    keras-ring run -np 2 --env KERAS_RING_COLLECTIVE=ring -- \
      python -m benchmarks.tls

Each round is two jobs of the same processes, one without TLS and one with, in
alternating order. Prints for each size the median times of the slower rank and
the median and quartiles of the rounds' ratios, with to without.
"""

import argparse
import json
import os
import time

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.launch.cli.bench_arguments import parse_bytes, parse_count

_WARMUP = 3


def medians(sizes, iterations):
    """Returns the median seconds of an allreduce of each size, by this rank."""
    found = []
    for size in sizes:
        x = tf.ones([max(1, size // 4)])

        @tf.function
        def step(x=x, name=f"x{size}"):
            return kr.allreduce(x, kr.Sum, name=name)

        times = []
        for i in range(_WARMUP + iterations(size)):
            start = time.perf_counter()
            result = step()
            result[0].numpy()
            if i >= _WARMUP:
                times.append(time.perf_counter() - start)
        if result.numpy().max() != kr.size():
            raise SystemExit(f"wrong sum of {size} bytes")
        found.append(float(np.median(times)))
    slowest = kr.allreduce(np.array(found), kr.Max)
    return slowest.numpy()


def measure(rounds, sizes, iterations):
    """Returns times by [TLS, round, size], and whether this is rank 0."""
    times = np.empty((2, rounds, len(sizes)))
    for at in range(rounds):
        for tls in (0, 1) if at % 2 == 0 else (1, 0):
            os.environ["KERAS_RING_TLS"] = str(tls)
            kr.init()
            times[tls, at] = medians(sizes, iterations)
            first = kr.rank() == 0
            kr.shutdown()
    return times, first


def _parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=parse_count, default=10, metavar="N")
    parser.add_argument(
        "--sizes",
        default="4KiB,64KiB,1MiB,16MiB,64MiB",
        metavar="B[,B...]",
        help="bytes of the tensors (default: %(default)s)",
    )
    parser.add_argument(
        "--iterations",
        type=parse_count,
        metavar="N",
        help="how often each in a round (default: 256 MiB of it, 5 to 300)",
    )
    return parser.parse_args(arguments)


def main(arguments=None):
    options = _parse(arguments)
    sizes = [parse_bytes(text) for text in options.sizes.split(",")]

    def iterations(size):
        return options.iterations or min(300, max(5, (256 << 20) // size))

    times, first = measure(options.rounds, sizes, iterations)
    if not first:
        return
    ratios = times[1] / times[0]
    for i, size in enumerate(sizes):
        low, middle, high = np.percentile(ratios[:, i], [25, 50, 75])
        plain, tls = np.median(times[:, :, i], axis=1)
        print(
            json.dumps(
                {
                    "bytes": size,
                    "plain_ms": round(plain * 1e3, 3),
                    "tls_ms": round(tls * 1e3, 3),
                    "ratio": round(middle, 2),
                    "quartiles": [round(low, 2), round(high, 2)],
                }
            )
        )


if __name__ == "__main__":
    main()
