"""What ranks do while one of them, which has much memory, is killed."""

import os
import signal
import time

import tensorflow as tf

import keras_ring as kr
from tests.harness import notify
from tests.multiprocess.failures.deaths import touch


def reduce_until_lost(victim, gib, forks):
    """Reduces for ever; the test kills `victim`, which has `gib` of memory.

    Args:
        victim: The rank that is killed.
        gib: What it has touched.
        forks: Whether it has a child, which keeps its connections open.

    Returns:
        When the error came (`time.monotonic`), and its first line.
    """
    kr.init()
    memory = touch(gib if kr.rank() == victim else 0)
    child = os.fork() if forks and kr.rank() == victim else 0
    if forks and kr.rank() == victim and child == 0:
        signal.alarm(60)
        signal.pause()
    child = int(kr.broadcast(tf.constant(child), victim, name="child"))
    notify("training")
    x = tf.ones([1000])
    try:
        while True:
            kr.allreduce(x, name="x")
    except tf.errors.UnavailableError as error:
        heard = time.monotonic()
        text = str(error)
    del memory
    if child:
        _end(child)
    return heard, text.splitlines()[0]


def _end(pid):
    """Kills a process, and waits until it is gone."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.01)
