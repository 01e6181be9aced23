"""What ranks do in test_timelines."""

import os
import signal
import threading
import time
from pathlib import Path

import tensorflow as tf

import keras_ring as kr
from keras_ring.core import telemetry
from tests.harness import notify

TENSORS = {"large": 300_000, "small": 7}


def _step(number):
    began = time.monotonic_ns()
    for name, size in TENSORS.items():
        kr.allreduce(tf.ones([size]), name=name)
    telemetry.span("step", "step", began, time.monotonic_ns(), number)


def record(path, steps):
    """What counters say of the steps that are recorded."""
    kr.init()
    _step(0)  # not recorded
    kr.barrier()
    kr.start_timeline(path)
    before = kr.metrics()
    for number in range(1, steps + 1):
        _step(number)
    after = kr.metrics()
    kr.stop_timeline()
    _step(steps + 1)  # nor is this
    return {name: after[name] - before[name] for name in after}


def run_until(done):
    kr.init()
    notify("ready")
    number = 0
    while not Path(done).exists():
        _step(number)
        number += 1
    # All ranks stop after the same step, whoever has seen the file.
    kr.join()


def killed_at(path, seconds):
    """Rank 1 is killed in the middle of what it does."""
    kr.init()
    if kr.rank() == 1:
        kill = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        kill.start()
    kr.start_timeline(path)
    number = 0
    while True:
        _step(number)
        number += 1
