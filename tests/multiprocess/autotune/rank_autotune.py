"""What single ranks do in test_tuned_jobs.py."""

import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.core import native

# Small ones that fuse, and some that are cut into parts.
_SIZES = (3, 1000, 17, 40_000, 300_000, 5)


def trains_until_tuned(log, most_steps):
    """Steps of a training whose sums are checked, until the log has an end.

    Every rank learns from rank 0 that it has: they stop after the same step.
    """
    kr.init()
    before = dict(_settings())
    inputs = [
        np.random.default_rng([kr.rank(), size]).normal(size=size)
        for size in _SIZES
    ]
    inputs = [values.astype("float32") for values in inputs]
    seen = set()
    expected = None
    for step in range(most_steps):
        ended = Path(log).exists() and "\n#" in Path(log).read_text()
        flag = tf.constant(float(kr.rank() == 0 and ended))
        sums = kr.grouped_allreduce(inputs[:2], kr.Sum, name="first")
        sums += [
            kr.allreduce(values, kr.Sum, name=f"sum.{i}")
            for i, values in enumerate(inputs[2:])
        ]
        bits = [values.numpy().tobytes() for values in sums]
        expected = expected or bits
        assert bits == expected, f"other bits in step {step}"
        seen.add(tuple(_settings().items()))
        if kr.allreduce(flag, kr.Max, name="flag").numpy():
            return step, before, dict(_settings()), len(seen)
    raise AssertionError(f"no end after {most_steps} steps")


def tuned_by_hand():
    """Another rank than 0 decides nothing, and rank 0 only what can be."""
    kr.init()
    core = native.core()
    calls = {
        "known": ("linger", 10),
        "unknown": ("x", 1),
        "bad": ("linger", -1),
    }
    told = {}
    for name, arguments in calls.items():
        try:
            core.tune(*arguments)
            told[name] = "done"
        except core.StatusError as error:
            told[name] = ": ".join(error.args)
    kr.allreduce(tf.ones([2]), name="after").numpy()
    return told, _settings()["linger"]


def init_error(without_optuna):
    if without_optuna:
        sys.modules["optuna"] = None
    try:
        kr.init()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", os.environ.get("KERAS_RING_AUTOTUNE", "")


def _settings():
    return {row[0]: row[2] for row in native.core().tunables()}
