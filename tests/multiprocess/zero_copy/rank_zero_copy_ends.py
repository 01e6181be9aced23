"""Ends of steps, of jobs and of ranks, while others read their tensors."""

import ctypes
import os
import random
import threading
import time

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import tensorflow as tf  # isort: skip

from tests.harness import notify

LARGE = 1 << 22  # elements: 16 MiB


def _trample():
    """Fills memory that is free, as the rest of a program would."""
    for count in (LARGE, LARGE // 2, LARGE // 8, 20_000) * 2:
        tf.fill([count], 1e9)


def _must_be(tensor, value):
    if not bool(tf.reduce_all(tensor == value)):
        raise ValueError(f"not everywhere {value}")


def cancelled_steps():
    """Rank 0 gives its steps up, and what they ask for is read afterwards."""
    from tensorflow.python.eager import cancellation

    from tests.multiprocess.collectives.rank_graph import _run_and_cancel

    kr.init()

    value = tf.Variable(0.0)

    @tf.function
    def step():
        # A fresh tensor, which nobody else holds.
        return kr.allreduce(tf.fill([LARGE], value), kr.Sum, name="step")

    concrete = step.get_concrete_function()
    for turn in range(8):
        if kr.rank() == 0:
            value.assign(float(turn))
            _run_and_cancel(cancellation, concrete)
            _trample()
            kr.broadcast(0, 0, name="go")
        else:
            value.assign(100.0)
            kr.broadcast(0, 0, name="go")
            _must_be(concrete(), 100.0 + turn)
        # Which runs after what rank 0 gave up.
        own_total = kr.allreduce(tf.fill([LARGE], 2.0), kr.Sum, name="next")
        _must_be(own_total, 2.0 * kr.size())


def jobs_one_after_another(jobs):
    """Leaves jobs in the middle of large sums, and starts the next.

    Returns:
        How many sums this rank has seen.
    """
    sums = 0
    for job in range(jobs):
        kr.init()
        rank, size = kr.rank(), kr.size()
        held = tf.fill([LARGE], float(rank + 1))
        own, failed = [], []

        def reduce(held=held, own=own, failed=failed, rank=rank, size=size):
            expected = size * (size + 1) / 2
            while True:
                try:
                    total = kr.allreduce(held, kr.Sum, name="held")
                    fresh = kr.allreduce(
                        tf.fill([LARGE], rank + 1.0), kr.Sum, name="fresh"
                    )
                except (tf.errors.OpError, ValueError) as error:
                    failed.append(error)
                    return
                for result in (total, fresh):
                    if not bool(tf.reduce_all(result == expected)):
                        failed.append(ValueError("a wrong sum"))
                        return
                    own.append(result)
                del own[:-4]

        thread = threading.Thread(target=reduce)
        thread.start()
        if rank == job % size:
            random.seed(job)
            while not own and not failed:
                time.sleep(0.001)
            time.sleep(random.uniform(0.0, 0.1))
            kr.shutdown()
        thread.join()
        if not isinstance(failed[0], tf.errors.OpError):
            raise failed[0]
        _trample()
        # The others may have been reading these.
        _must_be(held, rank + 1.0)
        for result in own:
            _must_be(result, size * (size + 1) / 2)
        sums += len(own)
        kr.shutdown()
    return sums


def reduce_large_until_death(how):
    """Large sums until a rank dies; then shows that its tensors are whole."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    held = tf.fill([LARGE], float(rank + 1))
    expected = size * (size + 1) / 2
    kr.allreduce(held, kr.Sum, name="held")
    packed = kr.metrics()["pack_ns"]

    def die():
        time.sleep(random.Random(how).uniform(0.05, 0.15))
        if how == "exit":
            os._exit(7)
        ctypes.string_at(8)

    results, steps = [], 0
    try:
        while True:
            total = kr.allreduce(held, kr.Sum, name="held")
            fresh = kr.allreduce(held * 1.0, kr.Sum, name="fresh")
            results += [total, fresh]
            steps += 1
            if steps == 10:
                if kr.metrics()["pack_ns"] != packed:
                    raise ValueError("the tensors were copied")
                notify("reducing")
                if rank == 1 and how != "signal":
                    threading.Thread(target=die, daemon=True).start()
            del results[:-6]
    except tf.errors.UnavailableError:
        _must_be(held, rank + 1.0)
        for result in results[-4:]:
            _must_be(result, expected)
        raise
