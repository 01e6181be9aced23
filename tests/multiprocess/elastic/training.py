"""A training of which some ranks are killed, and the weights of the others.

    keras-ring run --elastic -np 4 -- \
        python -m tests.multiprocess.elastic.training loop 300 1:0.5,3:0.9

trains for 300 updates. Rank 1 kills itself after half a second of training, and
rank 3 after 0.9. Prints on each rank that is left a digest of the weights after
each update.
"""

import argparse
import time
import zlib

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.elastic import deaths

_ROWS = 128  # of each rank


def _data(part, parts):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(_ROWS * parts, 16)).astype(np.float32)
    y = (x[:, :1] * 2 + x[:, 1:2]).astype(np.float32)
    return x[part::parts], y[part::parts]


def _digest(model):
    total = 0
    for weight in model.get_weights():
        total = zlib.crc32(weight.tobytes(), total)
    return total


class _Digests(keras.callbacks.Callback):
    """Notes the weights after each update."""

    def __init__(self, deadly):
        super().__init__()
        self.all = []
        self._deadly = deadly

    def on_train_batch_end(self, batch, logs=None):
        if not self.all:
            self._deadly.start()
        self.all.append(_digest(self.model))
        time.sleep(0.002)


def _loop(model, optimizer, data, updates, deadly, *, how):
    loss = keras.losses.MeanSquaredError()
    x, y = data

    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        if how != "loop":
            tape = kr.DistributedGradientTape(tape)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    if how != "eager_tape":
        step = tf.function(step)
    digests = []
    for number in range(updates):
        at = number * 8 % _ROWS
        step(x[at : at + 8], y[at : at + 8])
        if not digests:
            deadly.start()
        digests.append(_digest(model))
        time.sleep(0.002)
    return digests


def _fit(model, optimizer, data, updates, deadly, *, eagerly):
    digests = _Digests(deadly)
    model.compile(optimizer, "mse", run_eagerly=eagerly, jit_compile=False)
    model.fit(
        *data,
        batch_size=8,
        epochs=updates * 8 // _ROWS,
        verbose=0,
        callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback(0), digests],
    )
    return digests.all


def main():
    """Trains, and prints the digests."""
    parser = argparse.ArgumentParser()
    hows = ("loop", "fit", "eager", "tape", "eager_tape")
    parser.add_argument("how", choices=hows)
    parser.add_argument("updates", type=int)
    parser.add_argument("deaths", nargs="?", default="")
    options = parser.parse_args()
    kr.init()
    rank, size = kr.rank(), kr.size()
    deadly = deaths.timer(options.deaths, rank)
    keras.utils.set_random_seed(rank)
    model = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-2)
    if "tape" not in options.how:
        optimizer = kr.DistributedOptimizer(optimizer, elastic=True)
    kr.broadcast_variables(model.variables, 0)
    data = _data(rank, size)
    if options.how not in ("fit", "eager"):
        digests = _loop(
            model, optimizer, data, options.updates, deadly, how=options.how
        )
    else:
        digests = _fit(
            model,
            optimizer,
            data,
            options.updates,
            deadly,
            eagerly=options.how == "eager",
        )
    chain = zlib.crc32(np.array(digests, np.uint32).tobytes())
    print(
        f"was {rank}: rank {kr.rank()} of {kr.size()},"
        f" {len(digests)} steps, {int(optimizer.iterations)} updates,"
        f" digests {chain:08x}",
        flush=True,
    )
    kr.shutdown()


if __name__ == "__main__":
    main()
