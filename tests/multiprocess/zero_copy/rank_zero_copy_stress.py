"""Ranks that allocate and reduce at random, and look after what they have."""

import random
import threading
import time

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

from tests.multiprocess.zero_copy.rank_memory import MIB, memory, view

_DTYPES = ("float32", "float32", "int32", "float64", "bfloat16", "uint8")
# Of compiled functions: one program per size.
_COMPILED = (1000, 40_000, 300_000)
_LIVE_BYTES = 48 * MIB  # of each thread; there soon
_QUARTERS = 4


class Shelf:
    """Tensors that stay alive for a while, and must not change meanwhile.

    Args:
        choice: Where its randomness comes from.
    """

    def __init__(self, choice):
        self._choice = choice
        self._held = []  # tensor, what it must be, whether as a NumPy view
        self._bytes = 0

    def put(self, tensor, expected):
        """Keeps a tensor, or only the NumPy array that shows its memory."""
        if tensor.dtype != tf.bfloat16 and self._choice.random() < 0.3:
            tensor = view(tensor)
        self._held.append((tensor, expected))
        self._bytes += _num_bytes(tensor)
        while self._bytes > _LIVE_BYTES or self._choice.random() < 0.45:
            if not self._held:
                return
            self.drop_one()

    def drop_one(self):
        """Gives one up that is still what it was."""
        which = self._choice.randrange(len(self._held))
        self._held[which], self._held[-1] = self._held[-1], self._held[which]
        tensor, expected = self._held.pop()
        self._bytes -= _num_bytes(tensor)
        check(tensor, expected(), "a tensor that was kept")

    def clear(self):
        while self._held:
            self.drop_one()


def _num_bytes(tensor):
    return (
        int(tensor.nbytes)
        if hasattr(tensor, "nbytes")
        else (tensor.dtype.size * tensor.shape.num_elements())
    )


def check(tensor, expected, what):
    if not bool(tf.reduce_all(tensor == expected)):
        raise ValueError(
            f"{what} of {tuple(tensor.shape)} {tensor.dtype} is wrong"
        )


def pattern(count, dtype, factor, term):
    """Whole numbers below 100, exact in every dtype; made of temporaries."""
    numbers = tf.range(count, dtype=tf.int32) % 5 * factor + term
    return tf.cast(numbers, dtype)


def any_count(choice, size):
    """A number of elements, of 1 byte to 64 MiB; mostly few."""
    # What they are made of are integers of 4 bytes.
    return max(1, int(2 ** choice.uniform(0, 26)) // max(size, 4))


class Counted:
    """What a rank's threads have done, for the test to see.

    Args:
        seconds: Until the ranks agree to stop.
    """

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.stop = threading.Event()
        self.errors = []
        self.collectives = [0]
        self.allocations = [0]

    def run(self, function, *args):
        try:
            function(self, *args)
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()


def reduce_at_random(counted, thread):
    """Collectives in an order that is the same in this thread on all ranks."""
    together = random.Random(1000 + thread)
    shelf = Shelf(random.Random(100 * kr.rank() + thread))
    rank, size = kr.rank(), kr.size()
    factors = sum(range(1, size + 1))

    def tensor_of(count, dtype, term):
        return pattern(count, dtype, rank + 1, term)

    def total_of(count, dtype, term):
        return pattern(count, dtype, factors, size * term)

    @tf.function(reduce_retracing=True)
    def fused(held, term):
        fresh = held + tf.cast(term, held.dtype)
        return (
            kr.allreduce(fresh, kr.Sum, name=f"fresh{thread}"),
            kr.allreduce(held, kr.Sum, name=f"held{thread}"),
        )

    @tf.function(jit_compile=True)
    def compiled(held):
        return kr.allreduce(held, kr.Sum, name=f"compiled{thread}") + 1.0

    step = 0
    while True:
        step += 1
        kind = together.randrange(8)
        dtype = together.choice(_DTYPES)
        term = together.randrange(5)
        count = any_count(together, tf.as_dtype(dtype).size)
        if kind < 4:
            tensor = tensor_of(count, dtype, term)
            total = kr.allreduce(tensor, kr.Sum, name=f"one{thread}")
            check(total, total_of(count, dtype, term), "a sum")
            shelf.put(
                tensor, lambda c=count, d=dtype, t=term: tensor_of(c, d, t)
            )
            shelf.put(total, lambda c=count, d=dtype, t=term: total_of(c, d, t))
        elif kind == 4:
            held = tensor_of(count, "float32", term)
            fresh, same = fused(held, tf.constant(2))
            check(fresh, total_of(count, "float32", term + 2), "a fresh sum")
            shelf.put(same, lambda c=count, t=term: total_of(c, "float32", t))
        elif kind == 5:
            count = together.choice(_COMPILED)
            total = compiled(tensor_of(count, "float32", term))
            check(total, total_of(count, "float32", term) + 1, "a compiled sum")
        elif kind == 6:
            count = min(count, 4 * MIB)
            rows = kr.allgather(
                tf.reshape(tensor_of(count, dtype, term), [1, count]),
                name=f"rows{thread}",
            )
            for r in range(size):
                check(rows[r], pattern(count, dtype, r + 1, term), "a row")
        else:
            root = together.randrange(size)
            told = kr.broadcast(
                tensor_of(count, dtype, term), root, name=f"told{thread}"
            )
            check(told, pattern(count, dtype, root + 1, term), "what was told")
        if step % 8 == 0:
            wanted = not counted.stop.is_set()
            go_on = tf.constant(wanted and time.monotonic() < counted.end)
            if not bool(kr.broadcast(go_on, 0, name=f"go on{thread}")):
                break
    counted.collectives[0] += step
    shelf.clear()


def allocate_at_random(counted, thread):
    """Tensors of all sizes, of eager ops, graphs and compiled functions."""
    choice = random.Random(7 + 100 * kr.rank() + thread)
    shelf = Shelf(choice)

    @tf.function(reduce_retracing=True)
    def graph(x):
        return tf.reverse(tf.concat([x, x + 1.0], 0), [0])[: tf.size(x)] - 1.0

    @tf.function(jit_compile=True)
    def compiled(x):
        return tf.sqrt(x * x) + 0.0

    while not counted.stop.is_set():
        value = float(choice.randrange(1, 1000))
        kind = choice.randrange(4)
        count = any_count(choice, 16)
        if kind == 0:
            count = choice.choice(_COMPILED)
            tensor = compiled(tf.fill([count], value))
        elif kind == 1:
            tensor = graph(tf.fill([count], value))
        else:
            tensor = tf.fill([count], value)
        shelf.put(tensor, lambda v=value: v)
        counted.allocations[0] += 1
    shelf.clear()


def stress(seconds):
    """Everything at once, then little for a while.

    Args:
        seconds: Of everything at once.

    Returns:
        A dictionary: the numbers of collectives and of allocations, the mean
        MiB in each quarter of the time that the arena held (`held`) and that
        the process took (`memory`), the most of both (`most`), and both at
        the end (`after`).
    """
    kr.init()
    before = memory()[0]
    counted = Counted(seconds)
    reducers = [
        threading.Thread(target=counted.run, args=(reduce_at_random, i))
        for i in range(2)
    ]
    allocators = [
        threading.Thread(target=counted.run, args=(allocate_at_random, i))
        for i in range(2)
    ]
    for thread in (*reducers, *allocators):
        thread.start()
    samples = {"held": [], "memory": []}
    while any(thread.is_alive() for thread in reducers):
        samples["held"].append(_held())
        samples["memory"].append(memory()[0] - before)
        reducers[0].join(timeout=0.05)
        if counted.errors:
            raise counted.errors[0]
    counted.stop.set()
    for thread in (*reducers, *allocators):
        thread.join()
    if counted.errors:
        raise counted.errors[0]
    # Little is needed now; what was is given back within two windows.
    for _ in range(44):
        small = tf.ones([MIB // 4])
        check(kr.allreduce(small, kr.Sum, name="idle"), kr.size(), "a sum")
        time.sleep(0.5)
    return {
        "collectives": counted.collectives[0],
        "allocations": counted.allocations[0],
        **{key: _means(values) for key, values in samples.items()},
        "most": [max(values) for values in samples.values()],
        "after": [_held(), memory()[0] - before],
    }


def _means(values):
    """The mean of each quarter of the values."""
    quarter = max(1, len(values) // _QUARTERS)
    starts = range(0, quarter * _QUARTERS, quarter)
    return [round(float(np.mean(values[i : i + quarter]))) for i in starts]


def _held():
    metrics = kr.metrics()
    return (metrics["arena_bytes_in_use"] + metrics["arena_bytes_kept"]) // MIB
