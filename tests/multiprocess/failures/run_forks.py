"""A rank that forks, in all the ways that a program may.

A program of its own, since ends of interpreters are what it is about. Its
checks raise; the last one is a collective of all ranks.
"""

import contextlib
import ctypes
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import keras  # isort: skip
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

from tests.multiprocess.zero_copy.rank_memory import memory, view

MIB = 1 << 20
_LIMIT = 60.0


def check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(f"pid {os.getpid()}, rank {kr.rank()}: {what}")


def forked(body: Callable[[], None]) -> None:
    """Runs `body` in a fork, which ends as that says; returns in it only."""
    child = os.fork()
    if child == 0:
        # A child that hangs is not waited for.
        signal.alarm(int(_LIMIT))
        body()
        return
    _, status = os.waitpid(child, 0)
    check(status == 0, f"the child {body.__name__} ended with status {status}")


def in_fork(body: Callable[[], None]) -> None:
    """Runs `body` in a fork that ends at once."""

    def ends() -> None:
        code = 1
        try:
            body()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    ends.__name__ = body.__name__
    forked(ends)


def ends_normally() -> None:
    """Takes TensorFlow, the interpreter and the job apart."""
    sys.exit(0)


def raises() -> None:
    """Ends by an uncaught exception, which is not the rank's."""
    sys.stderr = io.StringIO()
    raise RuntimeError("of a child")


def knows_its_place() -> None:
    check(kr.is_initialized(), "not initialized")
    check(kr.rank() == int(os.environ["KERAS_RING_RANK"]), "a wrong rank")
    check(kr.size() == 2, "a wrong size")
    kr.init()  # changes nothing
    kr.metrics()


def calls_collectives() -> None:
    def call(name: str) -> None:
        kr.allreduce(tf.ones([3]), kr.Sum, name=name)

    # The first was called by the parent, too.
    for name in ("before", "in the child"):
        try:
            call(name)
        except tf.errors.FailedPreconditionError as error:
            text = f"was forked from rank {kr.rank()}"
            check(text in str(error), str(error))
        else:
            check(False, f"the collective '{name}' did something")
    for change in (
        lambda: kr.add_process_set([0]),
        lambda: kr.remove_process_set(kr.global_process_set),
    ):
        try:
            change()
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
        else:
            check(False, "process sets were changed")
    kr.shutdown()
    check(not kr.is_initialized(), "still initialized")


def not_dumped() -> None:
    """Of what ranks share, nothing goes into a core dump."""
    shared, flags = [], ""
    for line in reversed(Path("/proc/self/smaps").read_text().splitlines()):
        if line.startswith("VmFlags:"):
            flags = line
        elif "memfd:keras_ring" in line:
            shared.append(line)
            check("dd" in flags.split(), f"{line} is dumped: {flags}")
    # Of this rank and the other: segments and arenas.
    here = 4 if os.getpid() == RANK_PID and kr.local_size() == 2 else 0
    check(len(shared) >= here, f"shared memory: {shared}")


def square(x: int) -> int:
    return x * x + kr.rank()


# Batches that were made in workers; Keras looks at the first one in the rank.
in_workers = multiprocessing.get_context("fork").Value("i", 0)


class Batches(keras.utils.PyDataset):
    def __init__(self) -> None:
        super().__init__(workers=2, use_multiprocessing=True)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if os.getpid() != RANK_PID:
            with in_workers.get_lock():
                in_workers.value += 1
        return np.full([8, 4], float(kr.rank())), np.zeros([8, 1])


def trains_with_workers() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    start = kr.callbacks.BroadcastGlobalVariablesCallback()
    model.fit(Batches(), epochs=2, verbose=0, callbacks=[start])
    check(in_workers.value >= 4, f"{in_workers.value} batches in workers")


def starts_processes() -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=knows_its_place)
    process.start()
    process.join()
    check(process.exitcode == 0, f"a process ended with {process.exitcode}")
    with context.Pool(2) as pool:
        squares = pool.map(square, range(10))
    check(squares == [x * x + kr.rank() for x in range(10)], str(squares))
    for how in ({}, {"preexec_fn": os.getpgrp}):
        subprocess.run(["true"], check=True, timeout=_LIMIT, **how)


def does_not_copy_much() -> None:
    """Of 400 MiB of tensors a child takes little, and reads all."""
    large = tf.fill([100 * MIB], 7.0)
    array = view(large)

    def child() -> None:
        before = memory()[0]
        check(bool((array[::1024] == 7).all()), "other values")
        ctypes.memset(array.ctypes.data, 0, 4 * MIB)
        check(not array[:MIB].any(), "other values than it has written")
        # Half of what it has read: the parent has it, too.
        grown = memory()[0] - before
        check(grown < 250, f"{grown} MiB more")

    began = time.monotonic()
    for _ in range(5):
        in_fork(child)
    print(f"five forks with 400 MiB: {time.monotonic() - began:.2f} s")
    check(bool((array == 7).all()), "the parent's tensor has changed")


def forks_beside_threads() -> None:
    """While other threads take every lock that there is."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            kr.metrics()
            tf.fill([20_000], 1.0)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        in_fork(knows_its_place)
    stop.set()
    for thread in threads:
        thread.join()


def cpu_seconds() -> float:
    time.sleep(0.2)
    began = time.process_time()
    time.sleep(0.5)
    return time.process_time() - began


RANK_PID = os.getpid()


def main() -> None:
    kr.init()
    kr.allreduce(tf.ones([MIB]), kr.Sum, name="before")
    error_file = Path(os.environ["KERAS_RING_ERROR_FILE"])
    not_dumped()
    in_fork(not_dumped)
    in_fork(knows_its_place)
    in_fork(calls_collectives)
    starts_processes()
    forks_beside_threads()
    trains_with_workers()
    does_not_copy_much()
    kr.allreduce(tf.ones([MIB]), kr.Sum, name="between")
    # These leave main() in the child.
    began = time.monotonic()
    forked(ends_normally)
    check(time.monotonic() - began < 20, "a child took long to end")
    child = os.fork()
    if child == 0:
        signal.alarm(int(_LIMIT))
        raises()
    _, status = os.waitpid(child, 0)
    check(status == 256, f"the child that raises ended with {status}")
    check(not error_file.exists(), "the child's error is the rank's")
    used = cpu_seconds()
    check(used < 0.25, f"idle, and {used} s of CPU time in 0.5 s")
    total = kr.allreduce(tf.ones([MIB]), kr.Sum, name="after")
    np.testing.assert_array_equal(total[:5], 2.0)
    with contextlib.suppress(BrokenPipeError):
        print("all is well", flush=True)


if __name__ == "__main__":
    main()
