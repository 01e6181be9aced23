"""A real `fit` with what its rank has counted meanwhile, step by step."""

import time

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

STEPS = 40
# Seconds: of a backward pass, and of a forward pass of the slow rank.
BACKWARD, FORWARD = 0.01, 0.04
SLOW = 2
LAYERS = 6


class _Counts(keras.callbacks.Callback):
    """Notes counters as each step ends. It has to be the first callback."""

    def __init__(self):
        super().__init__()
        self.by_step = []

    def on_train_batch_end(self, batch, logs=None):
        self.by_step.append(kr.metrics())


def _after(seconds, x):
    """Returns a tensor later."""

    def sleep(x):
        time.sleep(seconds)
        return x

    return tf.ensure_shape(tf.numpy_function(sleep, [x], x.dtype), x.shape)


@tf.custom_gradient
def _slowly(x):
    # While the gradient of the first layer is computed, others are reduced.
    forward = FORWARD if kr.rank() == SLOW else 0.0
    return _after(forward, x), lambda upstream: _after(BACKWARD, upstream)


def train(path=""):
    """Trains for some steps.

    Args:
        path: Where a timeline is recorded; the launcher may do it instead.

    Returns:
        The counters before, by step, and afterwards.
    """
    kr.init()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((64,))])
    for number in range(LAYERS):
        model.add(keras.layers.Dense(256, "relu", name=f"layer_{number}"))
        if number == 0:
            model.add(keras.layers.Lambda(_slowly))
    model.add(keras.layers.Dense(1, name="last"))
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", jit_compile=False)
    if path:
        kr.start_timeline(path)
    counts = _Counts()
    before = kr.metrics()
    if not path:
        # That of the launcher begins with the job.
        before = dict.fromkeys(before, 0)
    x = np.random.default_rng(kr.rank()).normal(size=(16 * STEPS, 64))
    model.fit(
        x,
        x[:, :1],
        batch_size=16,
        callbacks=[counts, kr.callbacks.BroadcastGlobalVariablesCallback()],
        verbose=0,
    )
    after = kr.metrics()
    if path:
        kr.stop_timeline()
    return [before, *counts.by_step, after]
