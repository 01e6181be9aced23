"""What `--auto` costs a step, against the five lines of the README.

Both train the same model on the same batches in one job, epoch by epoch in
turns; the median of the ratios of neighbours is shown.

    keras-ring run -np 2 -- python benchmarks/auto_cost.py [--pairs 12]
"""

import statistics
import time

import keras
import numpy as np
from absl import app, flags

import keras_ring as kr
from keras_ring.unchanged import activation
from keras_ring.unchanged.settings import AutoSettings

FLAGS = flags.FLAGS
flags.DEFINE_integer("pairs", 12, "epochs of each")
STEPS, BATCH = 40, 64


def convolutions():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    ), (32, 32, 3)


def dense():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(512, activation="relu"),
            layers.Dense(512, activation="relu"),
            layers.Dense(10),
        ]
    ), (64,)


def epochs_of(make, rows, by_hand):
    """Returns a function that trains for one epoch, and its seconds."""
    keras.utils.set_random_seed(1)
    model, shape = make()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, *shape)).astype("float32")
    y = rng.integers(0, 10, rows)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.001)
    arguments = {"batch_size": BATCH}
    if by_hand:
        x, y = kr.data.shard((x, y))
        optimizer = kr.DistributedOptimizer(optimizer)
        arguments["batch_size"] //= kr.size()
    model.compile(optimizer, loss, metrics=["accuracy"])

    def epoch():
        # The first epoch of a `fit` has what it begins with.
        times = Times()
        callbacks = [times]
        if by_hand:
            callbacks += [
                kr.callbacks.BroadcastGlobalVariablesCallback(),
                kr.callbacks.MetricAverageCallback(),
            ]
        model.fit(x, y, epochs=2, verbose=0, callbacks=callbacks, **arguments)
        return times.seconds[-1]

    return epoch


class Times(keras.callbacks.Callback):
    """The seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        """Begins when all ranks do."""
        kr.barrier()
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Notes how long it took."""
        self.seconds.append(time.perf_counter() - self._began)


def main(_):
    activation.activate(AutoSettings())
    for make in (convolutions, dense):
        for rest in (0, 7):
            rows = STEPS * BATCH + rest
            by_hand = epochs_of(make, rows, True)
            auto = epochs_of(make, rows, False)
            by_hand(), auto()
            pairs = [
                (by_hand(), auto()) if turn % 2 else (auto(), by_hand())[::-1]
                for turn in range(FLAGS.pairs)
            ]
            ratio = statistics.median(b / a for a, b in pairs)
            step = statistics.median(a for a, _ in pairs) / STEPS * 1e3
            if kr.rank() == 0:
                what = "even" if not rest else "uneven"
                print(
                    f"{make.__name__}, {what} batches: {step:.2f} ms a step "
                    f"by hand, x {ratio:.3f} by --auto",
                    flush=True,
                )


if __name__ == "__main__":
    app.run(main)
