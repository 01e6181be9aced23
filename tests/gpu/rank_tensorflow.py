"""What single ranks do in test_tensorflow.py. Imported by every rank."""

import gc
import itertools
import os
import threading
import time

import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests import fake_gpu
from tests.harness import notify
from tests.multiprocess.collectives import rank_graph, rank_ops

# What is in flight when a step is cancelled ends within this time, in seconds.
_SETTLE = 20.0
# What TensorFlow keeps of eager ops, in bytes; a tensor of a step is larger.
_SMALL = 4096


def tables(calls, ms):
    """Runs functions of rank_ops with all collectives on a device.

    Ranks have different ones: the second of a process, too.
    """
    number = int(os.environ["KERAS_RING_RANK"]) % 2
    fake_gpu.place_collectives(fake_gpu.load(), number=number, ms=ms)
    return rank_ops.several(calls)


def where():
    """Returns on which device the result of each collective is."""
    ops = fake_gpu.load()
    kr.init()
    with tf.device(fake_gpu.device(1)):
        tensor = ops.keras_ring_test_slow(x=tf.ones([4, 2]), ms=1)
        received, splits = kr.alltoall(tensor, [2, 2], name="e")
        results = {
            "allreduce": kr.allreduce(tensor, name="a"),
            "allgather": kr.allgather(tensor, name="b"),
            "broadcast": kr.broadcast(tensor, 0, name="c"),
            "reducescatter": kr.reducescatter(tensor, name="d"),
            "alltoall": received,
            "splits": splits,
            "rank_op": kr.rank_op(),
        }
        kr.barrier(name="f")
    return {
        # Where its memory is, which is not where its op ran.
        name: result.backing_device.rpartition("device:")[2]
        for name, result in results.items()
    }


def _trained(steps):
    import keras

    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(24, activation="relu"),
            keras.layers.Dense(24, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    # Keras has XLA compile it where there is a device, if it may choose.
    optimizer = kr.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, "mse")
    assert not model.jit_compile
    random = np.random.default_rng(kr.rank())
    x = random.standard_normal((steps * 4, 16), "float32")
    y = x[:, :1] - x[:, 1:2]
    first = model.fit(x[:40], y[:40], batch_size=4, verbose=0, shuffle=False)
    before = _memory()
    last = model.fit(x[40:], y[40:], batch_size=4, verbose=0, shuffle=False)
    after = _memory()
    losses = (first.history["loss"][0], last.history["loss"][0])
    return model.get_weights(), losses, after - before


def _memory():
    """Bytes that tensors hold on the device; 0 without one."""
    gc.collect()
    name = f"{fake_gpu.device_type()}:0"
    if tf.config.list_logical_devices(fake_gpu.device_type()) == []:
        return 0
    return tf.config.experimental.get_memory_info(name)["current"]


def training(steps):
    """Trains with gradients reduced on the CPU, then on the device.

    Returns:
        Whether the weights have the same bits, the losses, and by how many
        bytes the memory of the device grew after ten steps.
    """
    ops = fake_gpu.load()
    kr.init()
    with tf.device("/CPU:0"):
        expected, losses, _ = _trained(steps)
        fake_gpu.place_collectives(ops)
        weights, losses_there, grown = _trained(steps)
    name = f"{fake_gpu.device_type()}:0"
    assert tf.config.experimental.get_memory_info(name)["peak"] > 0
    equal = [
        np.array_equal(one, other)
        for one, other in zip(expected, weights, strict=True)
    ]
    return all(equal), losses, losses_there, grown


def asked_for_at_once(tensors, ms):
    """Asks for tensors that a device has yet to write.

    Returns:
        How many collectives were open at most before the first had ended.
    """
    fake_gpu.place_collectives(fake_gpu.load(), ms=ms)
    kr.init()
    # One thread: an op that waits would keep the next from being asked for.
    tf.config.threading.set_inter_op_parallelism_threads(1)

    @tf.function
    def step():
        return [
            kr.allreduce(tf.fill([3], float(i)), kr.Sum, name=f"t{i}")
            for i in range(tensors)
        ]

    concrete = step.get_concrete_function()
    kr.barrier()
    ended = kr.metrics()["entries"]
    most = 0
    over = threading.Event()

    def watch():
        nonlocal most
        while not over.wait(0.001):
            metrics = kr.metrics()
            if metrics["entries"] == ended:
                most = max(most, metrics["pending"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    values = [value.numpy().tolist() for value in concrete()]
    over.set()
    watcher.join()
    assert values == [[2.0 * i] * 3 for i in range(tensors)], values
    return most


def cancelled_steps():
    """Steps that are cancelled while the device works on their tensors."""
    from tensorflow.python.eager import cancellation

    fake_gpu.place_collectives(fake_gpu.load(), ms=20)
    kr.init()
    peers = list(range(1, kr.size()))

    @tf.function
    def step():
        # Memory for the result of the second is found when the step is over.
        return (
            kr.allreduce(tf.ones([1 << 16]), kr.Sum, name="w"),
            kr.allgather(tf.ones([1 << 16]), name="g"),
        )

    concrete = step.get_concrete_function()
    for _ in range(8):
        if kr.rank() == 0:
            rank_graph._run_and_cancel(cancellation, concrete)
            kr.broadcast(0, 0, name="go")
        else:
            kr.broadcast(0, 0, name="go")
            concrete()
        summed = kr.allreduce(tf.ones([4]), kr.Sum, name="again")
        assert summed.numpy().tolist() == [1.0 + len(peers)] * 4
    del summed
    limit = time.monotonic() + _SETTLE
    while _memory() > _SMALL and time.monotonic() < limit:
        time.sleep(0.01)
    return max(0, _memory() - _SMALL)


def lost_rank():
    """Waits for a rank that is killed while devices work."""
    fake_gpu.place_collectives(fake_gpu.load(), ms=200)
    kr.init()
    try:
        for step in itertools.count():
            kr.allreduce(tf.ones([1 << 16]), kr.Sum, name="w")
            # All ranks are in this loop when the first has ended here.
            if kr.rank() == 1 and step == 0:
                notify("in flight")
    except tf.errors.UnavailableError as error:
        return str(error)


def no_memory():
    """The result of an allgather does not fit into the device."""
    fake_gpu.place_collectives(fake_gpu.load())
    kr.init()
    try:
        kr.allgather(tf.ones([50 << 20]), name="large")
    except tf.errors.ResourceExhaustedError as error:
        return str(error)
    return None


def pinned():
    """Returns which device this rank got, and where its tensors are then."""
    ops = fake_gpu.load()
    kr.init()
    own = kr.pin_gpu()
    assert kr.pin_gpu() == own  # as long as TensorFlow has not begun
    with tf.device("/GPU:0"):
        tensor = ops.keras_ring_test_slow(x=tf.fill([3], 2.0), ms=1)
        total = kr.allreduce(tensor, kr.Sum, name="a").numpy().tolist()
    limits = [
        device.memory_limit
        for device in tf.config.get_logical_device_configuration(
            tf.config.list_physical_devices("GPU")[own]
        )
        or []
    ]
    return own, len(tf.config.list_logical_devices("GPU")), total, limits


def pinned_too_late():
    """Returns what a program is told that has a tensor already."""
    fake_gpu.load()
    kr.init()
    tf.ones([3])
    try:
        kr.pin_gpu()
    except kr.errors.ConfigurationError as error:
        return str(error)
    return ""
