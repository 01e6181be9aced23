"""What ranks do in test_flight."""

import time
from pathlib import Path

import tensorflow as tf

import keras_ring as kr
from tests.harness import notify


def some_are_busy(release):
    """Rank 2 does something else until the file is there."""
    kr.init()
    half = kr.add_process_set([0, 1])
    kr.allreduce(tf.ones([4]), name="step")
    if kr.rank() != 2:
        kr.allreduce(tf.ones([3]), name="half", process_set=half)
        notify("ready")
    else:
        notify("ready")
        while not Path(release).exists():
            time.sleep(0.01)
    kr.allreduce(tf.ones([2, 5]), name="grad")


def own_handler(done):
    """A program with a handler of its own keeps it."""
    import signal

    calls = []
    signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
    kr.init()
    notify("ready")
    while not Path(done).exists():
        time.sleep(0.01)
    return len(calls)


def different_names():
    """The ranks wait for each other, which ends in the same error."""
    kr.init()
    kr.allreduce(tf.ones([4]), name="step")
    name = "loss" if kr.rank() == 1 else "grad"
    try:
        kr.allreduce(tf.ones([4]), name=name)
    except tf.errors.FailedPreconditionError as error:
        return error.message
    return ""


def wait_to_be_killed():
    kr.init()
    kr.allreduce(tf.ones([4]), name="step")
    notify("ready")
    if kr.rank() == 1:
        time.sleep(60)
    kr.allreduce(tf.ones([4]), name="grad")
