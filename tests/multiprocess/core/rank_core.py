"""What ranks do with `keras_ring.core`, where no framework is installed."""

import os
import signal
import sys
import threading
import time

import numpy as np

from keras_ring import core as kr
from keras_ring import errors
from keras_ring.core import rank_zero

FRAMEWORKS = ("tensorflow", "keras", "tf_keras", "torch", "jax", "absl")
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
MOVED = ("bool", "complex64", "complex128")


def _init():
    # Not in the process of the test, which imports this as well.
    assert not [name for name in FRAMEWORKS if name in sys.modules]
    # An import of them is an error from now on.
    sys.modules.update(dict.fromkeys(FRAMEWORKS))
    kr.init()
    return kr.rank(), kr.size()


def reductions():
    """Reductions of each dtype, against what NumPy makes of all arrays."""
    rank, size = _init()
    for dtype in (*FLOATS, *INTEGERS):
        arrays = [
            (np.arange(12).reshape(3, 4) % 5 + r + 1).astype(dtype)
            for r in range(size)
        ]
        stack = np.stack(arrays)
        wanted = {
            kr.Sum: stack.sum(0, dtype=dtype),
            kr.Min: stack.min(0),
            kr.Max: stack.max(0),
            kr.Product: stack.prod(0, dtype=dtype),
            kr.Average: (stack.sum(0, dtype=np.float64) / size)
            if dtype in FLOATS
            else stack.sum(0, dtype=np.int64) // size,
        }
        for op, value in wanted.items():
            got = kr.allreduce(arrays[rank], op, name=f"{dtype}.{op.name}")
            assert got.dtype == dtype
            tolerance = 1e-3 if dtype == "float16" else 1e-12
            if dtype == "float32":
                tolerance = 1e-6
            np.testing.assert_allclose(
                got.astype(np.float64),
                value.astype(np.float64),
                rtol=tolerance,
                err_msg=f"{dtype} {op}",
            )
            rows = kr.reducescatter(arrays[rank], op, name=f"s.{dtype}.{op}")
            first = sum(3 // size + (r < 3 % size) for r in range(rank))
            np.testing.assert_array_equal(rows, got[first : first + len(rows)])
    ours = np.float32(rank + 1)
    scaled = kr.allreduce(
        ours, kr.Sum, prescale_factor=2.0, postscale_factor=0.5
    )
    assert scaled.shape == () and scaled == sum(range(1, size + 1))
    numbers = np.array([rank, 7])
    doubled = kr.allreduce(numbers, kr.Max, prescale_factor=2.0)
    assert doubled.tolist() == [2 * (size - 1), 14]
    rounded = kr.allreduce(
        np.full(3, 1 + 2**-12), kr.Average, compression=kr.Compression.fp16
    )
    assert rounded.dtype == np.float64 and (rounded == 1).all()
    parallel = kr.allreduce(np.ones(4), kr.Adasum)
    np.testing.assert_allclose(parallel, np.ones(4))
    return True


def moves():
    """What is moved, also arrays that are strided, foreign or empty."""
    rank, size = _init()
    for dtype in (*FLOATS, *INTEGERS, *MOVED):
        array = np.full((rank, 2), rank % 2, dtype)
        gathered = kr.allgather(array)
        assert gathered.dtype == dtype
        wanted = [r % 2 for r in range(size) for _ in range(r)]
        assert gathered[:, 1].tolist() == np.array(wanted, dtype).tolist()
        from_last = kr.broadcast(np.array(rank, dtype), size - 1)
        assert from_last == np.array(size - 1, dtype)
    strided = np.arange(20).reshape(4, 5).T[::2] + rank
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(
        kr.broadcast(strided, 0), strided - rank, strict=True
    )
    foreign = np.arange(3, dtype=">i4") + rank
    foreign = foreign.astype(">i4")
    np.testing.assert_array_equal(kr.broadcast(foreign, 0), [0, 1, 2])
    splits = [(rank + r) % 3 for r in range(size)]
    rows = np.repeat(np.arange(size) + 10 * rank, splits)
    received, counts = kr.alltoall(rows, splits)
    wanted_counts = [(r + rank) % 3 for r in range(size)]
    assert counts.tolist() == wanted_counts
    assert (
        received.tolist()
        == np.repeat(10 * np.arange(size) + rank, wanted_counts).tolist()
    )
    even, _ = kr.alltoall(np.arange(size) + 10 * rank)
    assert even.tolist() == [10 * r + rank for r in range(size)]
    # Results have memory of their own, which outlives the next ones.
    kept = [kr.allgather(np.full(1000, rank)) for _ in range(20)]
    for array in kept:
        assert array.sum() == 1000 * sum(range(size))
        array += 1
    kr.barrier()
    big = np.random.default_rng(0).random(3_000_000)
    np.testing.assert_array_equal(kr.broadcast(big * (rank == 0), 0), big)
    return True


class _OfRankZero(Exception):
    """An exception that does not unpickle, as those of TensorFlow."""

    def __init__(self, place, text):
        super().__init__(f"{text} at {place}")


def calls_of_rank_zero():
    """A call of rank 0 ends for all ranks as it has ended there."""
    rank, size = _init()
    calls = []

    def call(result=None, error=None):
        calls.append(result)
        if error is not None:
            raise error
        return result

    def outcome(**ends):
        return rank_zero.call_on_rank_zero(lambda: call(**ends), "call")

    made = outcome(result={"a": rank})
    assert (made.result, made.error, made.error_text) == ({"a": 0}, None, "")
    failed = outcome(error=FileNotFoundError(2, "no such file", "x"))
    assert type(failed.error) is FileNotFoundError
    assert failed.error.filename == "x"
    assert failed.error_text.startswith("FileNotFoundError: [Errno 2]")
    foreign = outcome(error=_OfRankZero("x", "failed"))
    kind = _OfRankZero if rank == 0 else RuntimeError
    assert type(foreign.error) is kind
    assert "failed at x" in str(foreign.error)
    assert foreign.error_text == "_OfRankZero: failed at x"
    kept = outcome(result=(one for one in "ab"))
    assert (kept.result is None) == (rank > 0)
    assert len(calls) == (4 if rank == 0 else 0)
    return size == len(kr.allgather_object(rank))


def objects_and_sets():
    rank, size = _init()
    assert kr.broadcast_object({"a": [1, None]} if rank == 0 else 0) == {
        "a": [1, None]
    }
    assert kr.allgather_object("x" * rank) == ["x" * r for r in range(size)]
    share = kr.broadcast_object_fn(root_rank=size - 1)
    assert [share(rank + i) for i in range(3)] == [
        size - 1 + i for i in range(3)
    ]
    kr.require_same("same", "parts", ["a", "b"])
    try:
        kr.require_same("other", "parts", ["a", f"b{rank == 1}"])
    except ValueError as error:
        assert "differ first at position 1" in str(error), error
    else:
        raise AssertionError("no error")
    first = kr.add_process_set(range(size - 1))
    if first.included():
        total = kr.allreduce(np.ones(2), kr.Sum, process_set=first)
        assert total.tolist() == [size - 1] * 2
    else:
        try:
            kr.allreduce(np.ones(2), process_set=first)
        except errors.InvalidArgumentError as error:
            assert "not a member" in str(error), error
        else:
            raise AssertionError("no error")
    kr.remove_process_set(first)
    for _ in range(rank):
        kr.allreduce(np.ones(3), kr.Sum, name="uneven")
    assert kr.join() == size - 1
    assert kr.metrics()["entries"] > 0
    return True


def errors_are_told():
    """Returns what each kind of wrong call says here."""
    rank, _ = _init()
    told = {}

    def tell(what, function, *args, **kwargs):
        try:
            function(*args, **kwargs)
        except Exception as error:
            told[what] = (type(error).__name__, str(error))
        else:
            told[what] = ("", "")

    tell("text", kr.allgather, np.array(["a"]))
    tell("complex", kr.allreduce, np.ones(1, np.complex64))
    tell("adasum", kr.allreduce, np.ones(1, np.int32), kr.Adasum)
    tell("scalar", kr.allgather, 1.0)
    tell("op", kr.allreduce, 1.0, "sum")
    tell("shape", kr.allreduce, np.ones(1 + rank), name="shape")
    tell("dtype", kr.allreduce, np.ones(1, [np.int32, np.int64][rank]))
    tell("root", kr.broadcast, np.ones(1), 17)
    tell("splits", kr.alltoall, np.ones(4), [1, 1])
    told["code"] = ("", errors.UnavailableError.code)
    kr.barrier()
    return told


def threads_with_names():
    """Several threads at once, in another order on each rank."""
    rank, size = _init()
    results = {}

    def run(number):
        for step in range(20):
            total = kr.allreduce(
                np.full(5, rank + number), kr.Sum, name=f"thread.{number}"
            )
            results[number, step] = int(total[0])

    numbers = range(4) if rank % 2 else reversed(range(4))
    threads = [threading.Thread(target=run, args=(n,)) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = sum(range(size))
    assert len(results) == 80
    assert all(
        value == wanted + size * number
        for (number, _), value in results.items()
    )
    return True


def lost():
    """Rank 1 is killed; the others say who was lost."""
    rank, _ = _init()
    began = time.monotonic()
    try:
        kr.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            kr.allreduce(np.ones(10), name="loss")
    except errors.UnavailableError as error:
        assert error.code == "UNAVAILABLE"
        return str(error), time.monotonic() - began


def interrupted():
    """Control-C ends the wait of rank 0 for rank 1, which comes later."""
    rank, _ = _init()
    if rank == 0:
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        try:
            kr.allreduce(np.ones(3), name="late")
        except KeyboardInterrupt:
            waited = time.monotonic() - began
        else:
            raise AssertionError("not interrupted")
        assert waited < 10, waited
        # Its arrays outlive it: this reuses whatever was freed.
        for number in range(50):
            np.full(3, number)
    else:
        time.sleep(2)
        assert kr.allreduce(np.ones(3), name="late").tolist() == [1] * 3
    return kr.allgather(np.array([rank]), name="after").tolist()
