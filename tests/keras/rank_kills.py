"""A training that saves at each step, until it is killed."""

from pathlib import Path

import keras
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.checkpoint import saved_files
from keras_ring.keras.model import model_state
from tests.harness import notify
from tests.keras.rank_training import (
    digest,
    make_classifier,
    make_data,
    sparse_loss,
    start,
)


class Log:
    """What the weights were at each step, of this run and those before.

    Rank 0 writes a line before it saves, and one after.

    Args:
        path: Path of a file.
    """

    def __init__(self, path):
        self._path = path
        self.weights = {}
        self.saved = 0
        if path.exists():
            for line in path.read_text().splitlines():
                step, of_step = line.split()
                if of_step == "saved":
                    self.saved = max(self.saved, int(step))
                else:
                    # A step that is made again has the same bits.
                    known = self.weights.setdefault(int(step), of_step)
                    assert known == of_step, f"step {step} differs"

    def write(self, step, text):
        if kr.rank() == 0:
            with self._path.open("a") as file:
                file.write(f"{step} {text}\n")


class Watch(keras.callbacks.Callback):
    """Compares what was restored; writes down what is to be saved."""

    def __init__(self, log, after):
        super().__init__()
        self.log = log
        self.after = after

    def _step(self):
        return int(self.model.optimizer.iterations)

    def _digest(self):
        return digest(model_state.state_variables(self.model))

    def on_train_begin(self, logs=None):
        step = self._step()
        if self.after:
            assert step >= self.log.saved, (step, self.log.saved)
            if step:
                assert self._digest() == self.log.weights[step], step
            notify(f"restored {step}")

    def on_train_batch_end(self, batch, logs=None):
        # Batches that are passed over have been trained on before.
        if self._step() <= max([0, *self.log.weights]):
            return
        if self.after:
            self.log.write(self._step(), "saved")
            notify("saved")
        else:
            self.log.write(self._step(), self._digest())


def _model():
    model = make_classifier()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.01)), sparse_loss()
    )
    model.optimizer.build(model.trainable_variables)
    return model


def _load(directory):
    """Loads what `ModelCheckpoint` has left, but for what it had begun."""
    for path in directory.glob("[!.]*"):
        if path.suffix == ".keras":
            kr.load_model(path)
        elif path.suffix == ".h5":
            saved_files.require_whole(path)
            make_classifier().load_weights(path)


def train(directory):
    """Goes on from where the last run was killed, without end."""
    start()
    directory = Path(directory)
    log = Log(directory / "log.txt")
    _load(directory / "files")
    kr.barrier(name="loaded")
    data = tf.data.Dataset.from_tensor_slices(make_data(64))
    _model().fit(
        kr.data.shard(data, shuffle=True).batch(8),
        epochs=100_000,
        verbose=0,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            Watch(log, after=False),
            kr.callbacks.BackupAndRestore(directory / "backup", save_freq=1),
            kr.callbacks.ModelCheckpoint(
                directory / "files" / "model.keras", save_freq=1
            ),
            kr.callbacks.ModelCheckpoint(
                directory / "files" / "{epoch}-{batch}.weights.h5",
                save_weights_only=True,
                save_freq=1,
                keep=2,
            ),
            Watch(log, after=True),
        ],
    )
