"""What single ranks do in test_join.py. Imported by every rank."""

import os
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.collectives import collective_model as model

# A float32 without rounding, as Keras has it.
RATE = 2.0**-7


def _inputs(rank, step):
    return np.random.default_rng([rank, step]).normal(size=[4, 3])


def _steps_of(rank, epoch):
    """Different ones, none at all among them."""
    return 3 * ((rank + epoch) % 3)


def _trained(epochs, size):
    """What NumPy makes of it."""
    weights = np.ones([3])
    for epoch in range(epochs):
        for step in range(max(_steps_of(r, epoch) for r in range(size))):
            gradients = [
                2 * _inputs(r, step).T @ (_inputs(r, step) @ weights)
                for r in range(size)
                if step < _steps_of(r, epoch)
            ]
            weights = weights - RATE * np.mean(gradients, 0)
    return weights


def training(mode):
    """Steps of their own number, in several epochs."""
    kr.init()
    weights = tf.Variable(np.ones([3]))
    optimizer = keras.optimizers.SGD(RATE)
    optimizer.build([weights])

    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((inputs @ weights[:, tf.newaxis]) ** 2)
        tape = kr.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, [weights]), [weights])

    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "compiled")
    epochs = 4
    for epoch in range(epochs):
        for number in range(_steps_of(kr.rank(), epoch)):
            step(tf.constant(_inputs(kr.rank(), number)))
        last = kr.join()
        most = max(_steps_of(r, epoch) for r in range(kr.size()))
        assert _steps_of(last, epoch) == most
        kr.broadcast_variables([weights], last)
    np.testing.assert_allclose(weights, _trained(epochs, kr.size()), rtol=1e-9)


def _error_of(function):
    try:
        function()
    except (tf.errors.OpError, ValueError) as error:
        return type(error).__name__, str(error)
    raise AssertionError("no error")


def operations(many):
    """Everything, while rank 1 has joined; returns errors of the others."""
    kr.init(process_sets="dynamic")
    size, rank = kr.size(), kr.rank()
    live = [r for r in range(size) if r != 1]
    tf_ops = {
        kind: getattr(kr, kind)
        for kind in ("broadcast", "reducescatter", "alltoall")
    }
    needed = {
        "from it": lambda: tf_ops["broadcast"](tf.ones([2]), 1, name="from"),
        "parts": lambda: tf_ops["reducescatter"](tf.ones([8]), name="parts"),
        "rows for it": lambda: tf_ops["alltoall"](
            tf.ones([2 * size]), name="rows"
        ),
    }
    # Known and new: what all have agreed on before, and what they have not.
    for call in needed.values():
        call()
    kr.allgather(tf.range(rank + 2), name="gathered")
    kr.allreduce(tf.ones([3]), name="known")
    errors = {}
    if rank != 1:
        for turn in range(2):
            _reductions(turn, many, live)
            gathered = kr.allgather(tf.range(rank + 2), name="gathered")
            want = np.concatenate([np.arange(r + 2) for r in live])
            np.testing.assert_array_equal(gathered, want)
            objects = kr.allgather_object((rank, "x" * 10 * rank))
            assert objects == [(r, "x" * 10 * r) for r in live]
            found = kr.broadcast(tf.fill([many], rank), 0, name="root")
            assert not found.numpy().any()
            splits = [0 if r == 1 else rank + 1 for r in range(size)]
            received, counts = kr.alltoall(
                tf.fill([sum(splits), 2], rank), splits, name="exchange"
            )
            assert counts.numpy().tolist() == [
                0 if r == 1 else r + 1 for r in range(size)
            ]
            np.testing.assert_array_equal(
                received[:, 0], np.concatenate([[r] * (r + 1) for r in live])
            )
            kr.barrier()
            slices = tf.IndexedSlices(
                tf.fill([1, 2], rank + 1.0), tf.constant([rank]), [size, 2]
            )
            mean = tf.convert_to_tensor(kr.allreduce(slices, name="slices"))
            want = [0 if r == 1 else (r + 1) / len(live) for r in range(size)]
            np.testing.assert_allclose(mean[:, 0], want, rtol=1e-6)
            for name, call in needed.items():
                errors[f"{name} {turn}"] = _error_of(call)
            errors[f"new {turn}"] = _error_of(
                lambda turn=turn: kr.broadcast(1.0, 1, name=f"new{turn}")
            )
            errors[f"set {turn}"] = _error_of(lambda: kr.add_process_set([0]))
    last = kr.join()
    assert last != 1
    # All of it works again.
    members = kr.add_process_set([0])
    if rank in members.ranks:
        assert kr.allreduce(1.0, kr.Sum, process_set=members) == 1
    for call in needed.values():
        call()
    assert kr.allreduce(float(rank), kr.Sum) == sum(range(size))
    return errors


def _reductions(turn, many, live):
    """Each op of each dtype, small and large, alone and in a group."""
    for op in (*model.REDUCE_OPS, "Adasum"):
        dtypes = model.FLOATS if op == "Adasum" else model.REDUCIBLE
        arrays = {
            (dtype, count): [
                model.values(turn, r, (count,), dtype, op)
                for r in range(kr.size())
            ]
            for dtype in dtypes
            for count in (5, many)
        }
        own = [tf.constant(of[kr.rank()]) for of in arrays.values()]
        grouped = kr.grouped_allreduce(own, kr.ReduceOp[op], name=f"{op}.group")
        alone = [
            kr.allreduce(x, kr.ReduceOp[op], name=f"{op}.{i}")
            for i, x in enumerate(own)
        ]
        for results in (grouped, alone):
            for (what, of), result in zip(arrays.items(), results, strict=True):
                if op == "Adasum":
                    of = [x if r in live else 0 * x for r, x in enumerate(of)]
                else:
                    of = [of[r] for r in live]
                want = model.reduce(of, op)
                model.check_reduced(result, want, False, (op, what))


def all_at_once():
    """Many times, with nothing in between."""
    kr.init()
    return [kr.join() for _ in range(50)]


def other_threads(told):
    """A rank that has joined has no collectives; returns the error.

    Its join is over when the other rank joins, too: after there is a file
    `told`.
    """
    kr.init()
    error = None
    deadline = time.monotonic() + 60
    if kr.rank() == 0:
        joining = threading.Thread(target=kr.join)
        joining.start()
        while error is None and time.monotonic() < deadline:
            # Until the join has begun, this waits for rank 1.
            try:
                kr.allreduce(1.0, kr.Sum, name="thread")
            except tf.errors.FailedPreconditionError as caught:
                error = str(caught)
        Path(told).touch()
        joining.join()
    else:
        # As often as rank 0 does it.
        while True:
            count = kr.allreduce(1.0, kr.Sum, name="thread")
            if count == 1.0:
                break
        while not Path(told).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        kr.join()
    return error


def while_a_rank_dies():
    """Rank 1 ends in the middle of it."""
    kr.init()
    kr.allreduce(1.0)
    if kr.rank() == 1:
        assert kr.allreduce(3.0, kr.Sum, name="last") == 3.0
        os._exit(7)
    began = time.monotonic()
    try:
        kr.join()
    except tf.errors.UnavailableError as error:
        assert "lost rank 1" in str(error), error
        return time.monotonic() - began
    raise AssertionError("joined without rank 1")


def while_a_rank_shuts_down():
    """It will not join any more."""
    kr.init()
    if kr.rank() == 1:
        kr.shutdown()
        return "left"
    try:
        kr.join()
    except tf.errors.UnavailableError as error:
        return str(error)
    raise AssertionError("joined without rank 1")


def several(calls):
    """Makes calls of the functions above; returns their results."""
    return [globals()[name](*args) for name, *args in calls]
