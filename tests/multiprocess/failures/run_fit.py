"""A training program for chaos and soak: fit, evaluation, checkpoints.

Usage: run_fit.py DIRECTORY SECONDS [alone]. Each rank writes `here.RANK` once
it trains, with the number of its epochs, and `done.RANK` when it has come to
its end. Alone it trains with plain Keras: what that costs, ranks may cost too.
"""

import sys
import time
from pathlib import Path

# First, so that tensors lie where other ranks can read them.
import keras_ring as kr  # isort: skip
import keras
import numpy as np


class Beat(keras.callbacks.Callback):
    """Says that this rank trains, and ends the training in time on all."""

    def __init__(self, here, seconds, alone):
        super().__init__()
        self.here = here
        self.end = time.monotonic() + seconds
        self.alone = alone

    def on_train_batch_end(self, batch, logs=None):
        self.here.touch()

    def on_epoch_end(self, epoch, logs=None):
        self.here.write_text(f"{epoch + 1}\n")
        over = np.array(time.monotonic() > self.end)
        if bool(over if self.alone else kr.broadcast(over, 0, name="over")):
            self.model.stop_training = True


def main(directory, seconds, alone=False):
    """Trains until the time is up."""
    own, optimizer, callbacks = 0, keras.optimizers.Adam(1e-3), []
    if not alone:
        kr.init()
        own = kr.rank()
        optimizer = kr.DistributedOptimizer(optimizer)
        callbacks = [
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
        ]
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(optimizer, loss="mse", steps_per_execution=8)
    x = np.random.default_rng(own).normal(size=(4096, 64))
    x = x.astype("float32")
    y = x[:, :10]
    callbacks.append(Beat(directory / f"here.{own}", seconds, alone))
    if own == 0:
        callbacks.append(
            keras.callbacks.ModelCheckpoint(
                str(directory / "model.weights.h5"), save_weights_only=True
            )
        )
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=1_000_000,
        validation_data=(x[:256], y[:256]),
        callbacks=callbacks,
        verbose=0,
    )
    (directory / f"done.{own}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), "alone" in sys.argv[3:])
