"""A training program for chaos and soak: fit, evaluation, checkpoints.

Usage: run_fit.py DIRECTORY SECONDS. Each rank writes `here.RANK` once it
trains, and `done.RANK` when it has come to its end.
"""

import os
import sys
import time
from pathlib import Path

# First, so that tensors lie where other ranks can read them.
import keras_ring as kr  # isort: skip
import keras
import numpy as np

DIRECTORY = Path(sys.argv[1])
SECONDS = float(sys.argv[2])
RANK = os.environ["KERAS_RING_RANK"]


class Beat(keras.callbacks.Callback):
    """Says that this rank trains, and ends the training in time on all."""

    def __init__(self):
        super().__init__()
        self.end = time.monotonic() + SECONDS

    def on_train_batch_end(self, batch, logs=None):
        (DIRECTORY / f"here.{RANK}").touch()

    def on_epoch_end(self, epoch, logs=None):
        over = np.array(time.monotonic() > self.end)
        if bool(kr.broadcast(over, 0, name="over")):
            self.model.stop_training = True


def main():
    """Trains until the time is up."""
    kr.init()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        loss="mse",
        steps_per_execution=8,
    )
    x = np.random.default_rng(kr.rank()).normal(size=(4096, 64))
    x = x.astype("float32")
    y = x[:, :10]
    callbacks = [
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.MetricAverageCallback(),
        Beat(),
    ]
    if kr.rank() == 0:
        callbacks.append(
            keras.callbacks.ModelCheckpoint(
                str(DIRECTORY / "model.weights.h5"), save_weights_only=True
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
    (DIRECTORY / f"done.{RANK}").touch()


main()
