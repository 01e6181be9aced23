"""What single ranks do in test_graph.py."""

import threading
import time

import numpy as np
import tensorflow as tf

import keras_ring as kr


def overlap():
    """Rank 1 asks for B before A; rank 0 makes its A depend on nothing.

    Both functions ask for two tensors. On rank 1 the input of A needs the
    result of B (through the value, not by a control dependency), and on rank
    0 they are free. If rank 0's two were serialised, A first, then rank 0
    would wait for A and rank 1 for B: a hang. So that it ends is the proof.
    """
    kr.init()
    x = tf.constant([1.0, 2.0])

    @tf.function
    def step(x):
        if kr.rank() == 1:  # another trace, the same names
            b = kr.allreduce(x, kr.Sum, name="b")
            a = kr.allreduce(x + 0.0 * b, kr.Sum, name="a")
        else:
            a = kr.allreduce(x, kr.Sum, name="a")
            b = kr.allreduce(x, kr.Sum, name="b")
        return a, b

    for _ in range(20):
        a, b = step(x)
        np.testing.assert_array_equal(a, [2.0, 4.0])
        np.testing.assert_array_equal(b, [2.0, 4.0])


def executions():
    """How often ops run that TensorFlow would like to optimise."""
    kr.init()
    counts = {}

    def count(name, function, calls=1):
        kr.barrier(name=f"before.{name}")
        before = kr.metrics()["entries"]
        for _ in range(calls):
            function()
        kr.barrier(name=f"after.{name}")
        # The first barrier is still counted, or not, when it returns.
        counts[name] = kr.metrics()["entries"] - before

    @tf.function
    def constant():
        return kr.allreduce(tf.constant([1.0]), kr.Sum, name="constant")

    @tf.function
    def twins(x):
        return [
            kr.allreduce(x, kr.Sum, name="twin"),
            kr.allreduce(x, kr.Sum, name="other twin"),
        ]

    @tf.function
    def unused(x):
        kr.allreduce(x, kr.Sum, name="unused")
        return x

    @tf.function
    def only_control(x):
        y = kr.allreduce(x, kr.Sum, name="control")
        with tf.control_dependencies([y]):
            return tf.identity(x)

    @tf.function
    def loop(x):
        for _ in tf.range(5):
            x = kr.allreduce(x, kr.Sum, name="loop")
        return x

    @tf.function
    def loop_of_constants():
        # Nothing carries from one turn to the next but the counter.
        total = tf.constant(0.0)
        for _ in tf.range(5):
            total += kr.allreduce(tf.constant(1.0), kr.Sum, name="free")
        return total

    @tf.function
    def nested(x):
        @tf.function
        def inner(x, name):
            return kr.allreduce(x, kr.Sum, name=name)

        return inner(x, "inner 1") + inner(x, "inner 2")

    x = tf.constant([1.0])
    count("constant", constant, calls=3)
    count("twins", lambda: twins(x))
    count("unused", lambda: unused(x))
    count("control", lambda: only_control(x))
    count("loop", lambda: loop(x))
    count("free", loop_of_constants)
    count("nested", lambda: nested(x))
    assert loop(x).numpy()[0] == kr.size() ** 5
    assert loop_of_constants().numpy() == 5 * kr.size()
    return counts


def functions_that_run_once():
    """As tests of other systems are: each with collectives of its own."""
    kr.init()
    sums = []
    for number in range(40):

        @tf.function
        def once(x, number=number):
            total = kr.allreduce(x, kr.Sum, name=f"sum{number % 3}")
            everything = kr.allgather(tf.reshape(total, [1]))
            return tf.reduce_sum(everything)

        sums.append(float(once(tf.constant(float(number)))))
    return sums


def _asked():
    metrics = kr.metrics()
    return metrics["cache_hits"] + metrics["cache_misses"]


def _run_and_cancel(cancellation, concrete):
    """Cancels a step once its collective has been asked for."""
    manager = cancellation.CancellationManager()
    before = _asked()

    def cancel():
        limit = time.monotonic() + 20
        while _asked() == before and time.monotonic() < limit:
            time.sleep(0.001)
        manager.start_cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        manager.get_cancelable_function(concrete)()
        raise AssertionError("the step was not cancelled")
    except tf.errors.CancelledError:
        pass
    thread.join()


def cancelled_step():
    """A step that is cancelled while its collective waits for a peer."""
    kr.init()
    if kr.rank() == 1:
        kr.broadcast(0, 0, name="go")
        kr.allreduce(tf.ones([4]), kr.Sum, name="w")
        value = kr.allreduce(tf.ones([4]), kr.Sum, name="again")
        return value.numpy().tolist()

    from tensorflow.python.eager import cancellation

    @tf.function
    def step():
        return kr.allreduce(tf.ones([4]), kr.Sum, name="w")

    _run_and_cancel(cancellation, step.get_concrete_function())
    # Rank 1 asks only now. What rank 0 had asked for still takes part, so
    # rank 1 is not left waiting, and the job goes on.
    kr.broadcast(0, 0, name="go")
    value = kr.allreduce(tf.ones([4]), kr.Sum, name="again")
    return value.numpy().tolist()


def cancelled_again_and_again():
    """Memory and names come free after many cancelled steps."""
    import psutil
    from tensorflow.python.eager import cancellation

    kr.init()

    @tf.function
    def step():
        return kr.allreduce(tf.ones([1 << 18]), kr.Sum, name="w")

    concrete = step.get_concrete_function()
    sizes = []
    for _ in range(60):
        if kr.rank() == 0:
            _run_and_cancel(cancellation, concrete)
            kr.broadcast(0, 0, name="go")
        else:
            kr.broadcast(0, 0, name="go")
            concrete()
        kr.barrier(name="round")
        sizes.append(psutil.Process().memory_info().rss)
    return max(sizes[40:]) - min(sizes[20:40])
