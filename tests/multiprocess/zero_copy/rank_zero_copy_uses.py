"""What programs do with tensors, and with processes, beside reducing them."""

import ctypes
import gc
import hashlib
import multiprocessing
import os
import subprocess
import threading
from multiprocessing import resource_tracker

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

from tests.multiprocess.zero_copy.rank_memory import view

COUNT = 1 << 20


def _trample():
    for count in (COUNT, COUNT, COUNT // 4, 20_000) * 3:
        tf.fill([count], 1e9)


def _all(array, value):
    return bool((np.asarray(array) == value).all())


def _child(kept, changed, freed, pipe):
    """Looks at what the parent had, after the parent has gone on."""
    pipe.send("ready")
    pipe.recv()
    pipe.send([_all(kept, 7), _all(changed, 3), _all(freed, 5)])
    ctypes.memset(kept.ctypes.data, 0, kept.nbytes)
    pipe.send(_all(kept, 0))


def forked_child():
    """A child that reads and writes what its parent changes and frees."""
    kr.init()
    kept = tf.fill([COUNT], 7.0)
    variable = tf.Variable(tf.fill([COUNT], 3.0))
    changed = view(variable.read_value())
    freed = view(tf.fill([COUNT], 5.0))
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(
        target=_child, args=(view(kept), changed, freed, theirs)
    )
    child.start()
    if ours.recv() != "ready":
        raise ValueError("the child is not well")
    # As an optimizer does: in place.
    ctypes.memset(changed.ctypes.data, 0, changed.nbytes)
    del freed
    gc.collect()
    _trample()
    ours.send("go on")
    seen, own = ours.recv(), ours.recv()
    child.join()
    if child.exitcode:
        raise ValueError(f"the child ended with {child.exitcode}")
    total = kr.allreduce(kept, kr.Sum, name="after")
    return seen, own, _all(kept, 7), _all(total, 7 * kr.size())


def job_of_a_forked_child():
    """The child of a fork is the rank: nobody may read its parent's memory.

    Returns:
        Whether the child's tensors were copied.
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kr.init()
            before = kr.metrics()["pack_ns"]
            total = kr.allreduce(
                tf.fill([COUNT], kr.rank() + 1.0), kr.Sum, name="x"
            )
            copied = kr.metrics()["pack_ns"] > before
            if _all(total, kr.size() * (kr.size() + 1) / 2):
                os.write(writable, b"copied" if copied else b"direct")
            kr.shutdown()
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    said = os.read(readable, 100)
    os.close(readable)
    return said


def _sum_of_ones():
    return float(tf.reduce_sum(tf.ones([COUNT])))


def other_processes():
    """Children that are made in other ways.

    Returns:
        What a spawned one computes; what subprocesses, one of them forked
        because of its `preexec_fn`, see of our descriptors.
    """
    kr.init()
    held = tf.fill([COUNT], 2.0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(_sum_of_ones)
    # Else it goes a moment after us, and the harness takes it for left over.
    resource_tracker._resource_tracker._stop()
    command = ["ls", "-l", "/proc/self/fd"]
    seen = [
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            close_fds=False,
            timeout=60,
            **how,
        ).stdout
        for how in ({}, {"preexec_fn": os.getpgrp})
    ]
    total = kr.allreduce(held, kr.Sum, name="after")
    return spawned, seen, _all(total, 2 * kr.size())


def pipelines():
    """Tensors that come from threads of tf.data and from Python."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    data = (
        tf.data.Dataset.range(12)
        .map(
            lambda i: tf.fill([COUNT // 4], tf.cast(i, tf.float32) + rank),
            num_parallel_calls=4,
        )
        .shuffle(4, seed=1)
        .batch(2)
        .prefetch(3)
    )
    ranks = sum(range(size))
    for batch in data:
        total = kr.allreduce(batch, kr.Sum, name="batch")
        if not _all(total - size * batch, ranks - size * rank):
            raise ValueError("a wrong sum of a batch")

    @tf.function
    def through_python(x):
        y = tf.py_function(lambda v: v.numpy() * 2, [x], tf.float32)
        y.set_shape(x.shape)
        return kr.allreduce(y, kr.Sum, name="python")

    for step in range(5):
        total = through_python(tf.fill([COUNT], float(rank + step)))
        if not _all(total, 2 * (ranks + size * step)):
            raise ValueError("a wrong sum of what Python made")


def views():
    """NumPy arrays that show the memory of tensors that are gone."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    arrays = []
    for step in range(8):
        tensor = tf.fill([COUNT], float(rank + step))
        total = kr.allreduce(tensor, kr.Sum, name="x")
        arrays.append((view(tensor), rank + step))
        arrays.append((view(total), sum(range(size)) + size * step))
        del tensor, total
        gc.collect()
        thread = threading.Thread(target=_trample)
        thread.start()
        thread.join()
    return [_all(array, value) for array, value in arrays]


def _model():
    import keras

    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((256,)),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def fit(jit_compile, path):
    """Trains, saves and loads; the same bits wherever tensors lie.

    Returns:
        A digest of the weights, one of what the loaded model says, and
        whether large tensors were copied.
    """
    import keras

    kr.init()
    tf.config.experimental.enable_op_determinism()
    model = _model()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.001)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    random = np.random.default_rng(kr.rank())
    x = random.normal(size=(32 * 12, 256)).astype("float32")
    y = random.integers(10, size=32 * 12)
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=2,
        verbose=0,
        callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()],
    )
    weights = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights()))
    folder = os.path.join(path, f"rank{kr.rank()}")
    tf.saved_model.save(model, folder)
    loaded = tf.saved_model.load(folder)
    again = loaded.signatures["serving_default"](tf.constant(x[:64]))
    (outputs,) = again.values()
    before = kr.metrics()["pack_ns"]
    kr.allreduce(outputs @ tf.ones([10, 8192]), kr.Sum, name="large")
    copied = kr.metrics()["pack_ns"] > before
    said = hashlib.sha256(outputs.numpy().tobytes())
    return weights.hexdigest(), said.hexdigest(), copied
