"""A rank whose collectives go through MPI. Argument: a letter for the host of
each rank."""

import os
import sys

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
os.environ["KERAS_RING_HOST_ID"] = sys.argv[1][WORLD.rank]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_ring as kr  # noqa: E402

# Of one message, of several, and of more than any MPI sends at once.
COUNTS = (1, 1000, 40_000, 300_000)


def values(rank, count, dtype):
    """Whole numbers, so that sums are exact in every order."""
    return ((np.arange(count) + 3 * rank) % 61).astype(dtype)


def sums(count, dtype, ranks):
    return sum(values(rank, count, np.float64) for rank in ranks).astype(dtype)


def check_collectives():
    ranks = range(kr.size())
    for dtype in ("float32", "float16", "int64"):
        for count in COUNTS:
            own = tf.constant(values(kr.rank(), count, dtype))
            total = kr.allreduce(own, op=kr.Sum).numpy()
            np.testing.assert_array_equal(total, sums(count, dtype, ranks))
    for count in COUNTS:
        own = tf.constant(values(kr.rank(), count, "float32"))
        gathered = kr.allgather(own).numpy()
        expected = np.concatenate([values(r, count, "float32") for r in ranks])
        np.testing.assert_array_equal(gathered, expected)
        for root in (0, kr.size() - 1):
            np.testing.assert_array_equal(
                kr.broadcast(own, root).numpy(), values(root, count, "float32")
            )
    rows = tf.constant(values(kr.rank(), 60_000, "float32"))
    parts = np.split(sums(60_000, "float32", ranks), kr.size())
    np.testing.assert_array_equal(
        kr.reducescatter(rows, op=kr.Sum).numpy(), parts[kr.rank()]
    )
    total = kr.allreduce(
        tf.constant(values(kr.rank(), 1000, "float32")),
        op=kr.Sum,
        compression=kr.Compression.fp16,
    )
    np.testing.assert_array_equal(total.numpy(), sums(1000, "float32", ranks))


def check_process_sets():
    """Two sets at a time, each with messages of its own."""
    ends = kr.add_process_set([0, kr.size() - 1])
    others = kr.add_process_set(list(range(kr.size() - 1)))
    for one in (ends, others):
        if not one.included():
            continue
        own = tf.constant(values(kr.rank(), 40_000, "float32"))
        np.testing.assert_array_equal(
            kr.allreduce(own, op=kr.Sum, process_set=one).numpy(),
            sums(40_000, "float32", one.ranks),
        )
    kr.remove_process_set(ends)


for _ in range(2):
    kr.init()
    check_collectives()
    check_process_sets()
    assert WORLD.allreduce(1) == kr.size(), "MPI is the program's, too"
    place = f"local={kr.local_rank()}/{kr.local_size()}"
    kr.shutdown()
os.write(1, f"rank {WORLD.rank} {place}\n".encode())
