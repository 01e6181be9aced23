"""What ranks do with tensors that lie in shared memory."""

import ctypes
import os
import random

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

from tests.multiprocess.zero_copy.rank_memory import view


def sums():
    """Large and small tensors, TensorFlow's and NumPy's, in place and not.

    Returns:
        The nanoseconds spent packing the large ones, and the arena's bytes.
    """
    kr.init()
    rank, size = kr.rank(), kr.size()
    expected = size * (size + 1) / 2
    held = [tf.fill([n], float(rank + 1)) for n in (1 << 20, 3, 70_001, 1)]

    @tf.function
    def out_of_place():
        return [
            kr.allreduce(tensor, kr.Sum, name=f"held{i}")
            for i, tensor in enumerate(held)
        ]

    @tf.function
    def in_place(one):
        return [
            kr.allreduce(tensor * one, kr.Sum, name=f"fresh{i}")
            for i, tensor in enumerate(held)
        ]

    for _ in range(20):
        for results in (out_of_place(), in_place(tf.constant(1.0))):
            for result in results:
                np.testing.assert_array_equal(result, expected)
    for tensor in held:
        np.testing.assert_array_equal(tensor, rank + 1)

    before = kr.metrics()["pack_ns"]
    kr.allreduce(held[0], kr.Sum, name="direct")
    packed = kr.metrics()["pack_ns"] - before

    array = np.full(1 << 20, rank + 1.0, np.float32)
    own = kr.allreduce(array if rank == 0 else held[0], kr.Sum, name="mixed")
    np.testing.assert_array_equal(own, expected)
    return packed, kr.metrics()["arena_bytes_in_use"]


def memory(steps):
    """Steps that allocate as they like; how much of the arena stays.

    Returns:
        The largest number of bytes in use or kept after a step in the first
        and in the last quarter of the steps.
    """
    kr.init()
    choice = random.Random(kr.rank())
    held, sizes = [], []
    for step in range(steps):
        count = [300_000, 20_000, 900_000][step % 3]
        result = kr.allreduce(tf.ones([count]), kr.Sum, name="step")
        np.testing.assert_array_equal(result[:5], kr.size())
        held.append(result)
        if len(held) > 6:
            held.pop(choice.randrange(len(held)))
        metrics = kr.metrics()
        sizes.append(
            metrics["arena_bytes_in_use"] + metrics["arena_bytes_kept"]
        )
    return max(sizes[: steps // 4]), max(sizes[-steps // 4 :])


def fork():
    """A child that writes to a tensor of its parent's.

    Returns:
        The exit code of the child.
    """
    kr.init()
    tensor = tf.fill([1 << 20], 7.0)
    array = view(tensor)
    child = os.fork()
    if child == 0:
        same = bool((array == 7).all())
        ctypes.memset(array.ctypes.data, 0, array.nbytes)
        os._exit(0 if same and not array.any() else 1)
    _, status = os.waitpid(child, 0)
    np.testing.assert_array_equal(tensor, 7.0)
    total = kr.allreduce(tensor, kr.Sum, name="after")
    np.testing.assert_array_equal(total, 7.0 * kr.size())
    return os.waitstatus_to_exitcode(status)
