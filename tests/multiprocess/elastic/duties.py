"""A `fit` with all that writes, of which rank 0 is killed.

    keras-ring run --elastic -np 3 -- \
        python -m tests.multiprocess.elastic.duties FOLDER epoch:2 save:4

Rank 0 kills itself in the middle of its epoch 2, and who is rank 0 then while
it saves the model after epoch 4. Other places: `validation:E`, `end:E` (of the
epoch, after the files were written), `begin:E`, and `after:SECONDS` since the
begin of the training.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

EPOCHS = 6
_ROWS = 64


class Deaths(keras.callbacks.Callback):
    """Kills rank 0 at the places that are named, each once."""

    def __init__(self, places, folder):
        super().__init__()
        self._places = places
        self._folder = folder
        self.epoch = 0

    def die_at(self, place):
        here = f"{place}:{self.epoch}"
        if here in self._places and kr.rank() == 0:
            self._die(here)

    def _die(self, here):
        try:
            (self._folder / f"died-{here}").touch(exist_ok=False)
        except FileExistsError:
            return  # the one before this rank 0
        os.kill(os.getpid(), signal.SIGKILL)

    def _die_if_first(self, here):
        if kr.rank() == 0:
            self._die(here)

    def on_train_begin(self, logs=None):
        for here in self._places:
            place, _, when = here.partition(":")
            if place == "after":
                timer = threading.Timer(
                    float(when), self._die_if_first, (here,)
                )
                timer.daemon = True
                timer.start()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.die_at("begin")

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self.die_at("epoch")

    def on_test_batch_end(self, batch, logs=None):
        self.die_at("validation")

    def on_epoch_end(self, epoch, logs=None):
        self.die_at("end")


class Mine(keras.callbacks.Callback):
    """Notes its calls in a file, as programs do with callbacks of their own."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def _note(self, line):
        with self._path.open("a") as file:
            print(line, file=file)

    def on_train_begin(self, logs=None):
        self._note("begin")

    def on_epoch_end(self, epoch, logs=None):
        updates = int(self.model.optimizer.iterations)
        self._note(f"{epoch} {self.params['epochs']} {updates > 0}")


class Board(keras.callbacks.TensorBoard):
    """Notes in a file what would be written, without TensorBoard itself."""

    def __init__(self, path):
        super().__init__(path.parent / "board", update_freq=1)
        self._path = path

    @property
    def summary(self):
        return self

    def create_file_writer(self, folder):
        return Writer(self, Path(folder).name)

    def note(self, *words):
        with self._path.open("a") as file:
            print(*words, file=file)

    def scalar(self, name, value, step):
        if name in ("epoch_loss", "batch_loss"):
            self.note(name, int(step))

    def record_if(self, condition):
        return contextlib.nullcontext()

    def _write_keras_model_summary(self):
        self.note("model")

    def _write_keras_model_train_graph(self):
        self.note("graph")


class Writer(contextlib.nullcontext):
    """A writer of summaries that writes nothing."""

    def __init__(self, board, name):
        super().__init__()
        self._board, self._name = board, name

    def as_default(self, step=0):
        return self

    def close(self):
        self._board.note("closed", self._name)


class Dying(keras.layers.Layer):
    """Ends the process that saves it, at its time."""

    deaths = None

    def call(self, x):
        return x

    def get_config(self):
        if self.deaths is not None:
            self.deaths.die_at("save")
        return super().get_config()


def main():
    """Trains, and prints what this rank ends with."""
    folder = Path(sys.argv[1])
    kr.init()
    was, size = kr.rank(), kr.size()
    keras.utils.set_random_seed(0)
    dying = Dying()
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(4, activation="relu"),
            dying,
            keras.layers.Dense(1),
        ]
    )
    optimizer = kr.DistributedOptimizer(keras.optimizers.Adam(1e-2))
    model.compile(optimizer, "mse", jit_compile=False)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(_ROWS * size, 4)).astype("float32")
    y = x.sum(axis=1)
    deaths = Deaths(sys.argv[2:], folder)
    dying.deaths = deaths
    history = model.fit(
        x[was::size],
        y[was::size],
        batch_size=8,
        epochs=EPOCHS,
        validation_data=(x[:16], y[:16]),
        verbose=2,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(0),
            kr.callbacks.MetricAverageCallback(),
            keras.callbacks.CSVLogger(folder / "log.csv"),
            Board(folder / "board.txt"),
            keras.callbacks.ModelCheckpoint(folder / "keras-{epoch}.keras"),
            kr.callbacks.ModelCheckpoint(folder / "ours-{epoch}.keras"),
            kr.callbacks.BackupAndRestore(folder / "backup"),
            kr.callbacks.RankZeroOnly(Mine(folder / "mine.txt")),
            keras.callbacks.EarlyStopping("loss", patience=20),
            deaths,
        ],
    )
    losses = " ".join(f"{loss:.9g}" for loss in history.history["val_loss"])
    print(f"was {was}: rank {kr.rank()} of {kr.size()}, {losses}", flush=True)
    assert tf.executing_eagerly()
    kr.shutdown()


if __name__ == "__main__":
    main()
