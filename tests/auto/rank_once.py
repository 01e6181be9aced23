"""What ranks do in `test_once_on_ranks.py`. Each returns plain values."""

import os
import pathlib
import shutil
import sqlite3
import tempfile
import threading
from shutil import rmtree

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.core.meeting import Meeting
from keras_ring.keras.lanes import keras
from keras_ring.tensorflow.gathers import barrier
from keras_ring.unchanged import once
from tests.auto import rank_auto
from tests.auto.rank_auto import printed, refused

RANKS = 3  # of the job whose results are those of one process


def before_each_call():
    """Starts each program from nothing, as one process does."""
    rank_auto.before_each_call()


def _names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def paths(folder):
    """Makes, moves and removes what other ranks also would."""
    folder = pathlib.Path(folder)
    was_there = os.path.exists(folder / "run")
    if not was_there:
        os.makedirs(folder / "run")
    found = [was_there]
    try:
        os.mkdir(folder / "run")
    except FileExistsError as error:
        found.append((type(error).__name__, error.errno, error.filename))
        # All ranks handle it, and wait for each other.
        rmtree(folder / "run")
    inner = folder / "run" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "one").touch(exist_ok=False)
    (inner / "one").rename(inner / "two")
    os.replace(inner / "two", inner / "three")
    found.append(str(shutil.copy(inner / "three", inner / "four")))
    os.symlink(inner / "four", folder / "run" / "five")
    shutil.move(inner / "three", folder / "run")
    found.append(_names(folder))
    os.remove(folder / "run" / "three")
    (inner / "four").unlink()
    inner.rmdir()
    found.append(_names(folder))
    shutil.rmtree(folder / "run")
    found.append(os.path.exists(folder / "run"))
    return found


def paths_of_one_rank(folder):
    """Changes what is this rank's own, where no other one would come."""
    found = []
    with tempfile.TemporaryDirectory(dir=folder) as own:
        os.mkdir(os.path.join(own, "run"))
        found.append(os.path.isdir(os.path.join(own, "run")))
    found.append(os.path.exists(own))
    # In a thread, while an error is handled that other ranks do not have, and
    # where the program says who does it.
    if once._rank == 1:
        path = os.path.join(folder, "of_thread")
        # By a function of the program: what a library calls is left alone.
        thread = threading.Thread(target=lambda: os.mkdir(path))
        thread.start()
        thread.join()
        try:
            raise LookupError
        except LookupError:
            os.mkdir(os.path.join(folder, "of_error"))
    if kr.rank() == 2:
        os.mkdir(os.path.join(folder, "of_rank"))
    barrier(name="test/paths_of_one_rank")
    return [*found, sorted(os.listdir(folder))]


def path_that_one_rank_makes(folder):
    """One rank comes where the others do not; returns what it is told."""
    once._wait = 1.0
    text = None
    if once._rank == 1:
        texts = []
        said = printed(
            lambda: texts.append(
                refused(lambda: os.mkdir(os.path.join(folder, "alone")))
            )
        )
        text = said, *texts
    barrier(name="test/path_that_one_rank_makes")
    if once._rank != 1:
        # What the rank has asked for, it still waits for.
        Meeting(f"{once._NAME}/paths", "elsewhere").wait(60)
    # Of a job that a rank has left, nothing more can be waited for.
    barrier(name="test/path_that_one_rank_makes/waited")
    return text, os.path.exists(os.path.join(folder, "alone"))


def checkpoints(folder):
    """Saves, deletes and restores checkpoints of TensorFlow, as it trains."""
    model = rank_auto.dense()
    optimizer = keras.optimizers.SGD(0.01)
    data = tf.data.Dataset.from_tensor_slices(rank_auto.data()).batch(20)
    losses = keras.metrics.Mean()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        losses.update_state(loss)
        tf.summary.write("loss", loss, optimizer.iterations)

    saved = tf.train.Checkpoint(model=model, epoch=tf.Variable(0))
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=2)
    writer = tf.summary.create_file_writer(os.path.join(folder, "logs"))
    found = []
    for _ in range(4):
        with writer.as_default():
            for batch in data:
                step(*batch)
        saved.epoch.assign_add(1)
        found.append(manager.save())
        assert os.path.exists(found[-1] + ".index")
    writer.close()
    found += [manager.latest_checkpoint, manager.checkpoints]
    found.append(saved.save(os.path.join(folder, "own", "of")))
    found.append(saved.write(os.path.join(folder, "own", "alone")))
    saved.epoch.assign(0)
    saved.restore(tf.train.latest_checkpoint(folder)).expect_partial()
    found += [int(saved.epoch), int(saved.save_counter)]
    # In order and in number; one rank has written the events.
    names = _names(pathlib.Path(folder))
    found.append([name for name in names if "events" not in name])
    found.append(sum("events" in name for name in names))
    weights = [np.array(each) for each in model.get_weights()]
    return {"found": found, "weights": weights}


def files_of_tensorflow(folder):
    """Writes files in the ways of TensorFlow; returns what is in them."""
    top = pathlib.Path(folder)
    path = str(top / "rows.tfrecord")
    found = []
    with tf.io.TFRecordWriter(path) as writer:
        for row in range(500):
            writer.write(f"row {row}".encode())
    found.append(sum(1 for _ in tf.data.TFRecordDataset(path)))
    writer = tf.io.TFRecordWriter(str(top / "two.tfrecord"))
    writer.write(b"row")
    writer.close()
    found.append(os.path.getsize(top / "two.tfrecord"))
    with tf.io.gfile.GFile(str(top / "text.txt"), "a") as file:
        file.write("once\n")
    found.append((top / "text.txt").read_text())
    tf.io.write_file(str(top / "bytes.txt"), b"once")
    found.append((top / "bytes.txt").read_bytes())
    tf.io.gfile.makedirs(str(top / "a" / "b"))
    tf.io.gfile.rename(str(top / "bytes.txt"), str(top / "a" / "moved.txt"))
    tf.io.gfile.remove(str(top / "text.txt"))
    tf.data.Dataset.range(7).save(str(top / "rows"))
    found.append(len(list(tf.data.Dataset.load(str(top / "rows")))))
    module = tf.Module()
    module.value = tf.Variable(3.0)
    tf.saved_model.save(module, str(top / "model"))
    found.append(float(tf.saved_model.load(str(top / "model")).value))
    tf.io.gfile.rmtree(str(top / "model"))
    tf.io.gfile.rmtree(str(top / "rows"))
    return [*found, _names(top)]


def _slow_down(model):
    """Changes the training where the code of a callback does not tell."""
    name = "learning_rate"
    setattr(model.optimizer, name, 0.5 * float(model.optimizer.learning_rate))


class Tracker(keras.callbacks.Callback):
    """Tracks a training in a database, and changes it."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.rows = []

    def on_train_begin(self, logs=None):
        self.database = sqlite3.connect(self.path)
        self.database.execute("create table if not exists run (epoch, loss)")
        self.database.execute("create table if not exists batch (loss)")

    def on_train_batch_end(self, batch, logs=None):
        self.database.execute("insert into batch values (?)", [logs["loss"]])

    def on_epoch_end(self, epoch, logs=None):
        row = epoch, float(logs["loss"])
        self.rows.append(row)
        self.database.execute("insert into run values (?, ?)", row)
        self.database.commit()
        _slow_down(self.model)
        if epoch == 1:
            kernel = self.model.trainable_variables[0]
            kernel.assign(kernel * 0.5 + np.random.random())
        self.model.stop_training = epoch == 3


class Draws(keras.callbacks.Callback):
    """Saves a picture of what the model makes of noise, and evaluates it."""

    def __init__(self, path, x, y):
        super().__init__()
        self.path = path
        self.x, self.y = x, y
        self.errors = []

    def _evaluate(self):
        error = self.model.evaluate(self.x, self.y, batch_size=10, verbose=0)
        self.errors.append(error)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self._evaluate()

    def on_epoch_end(self, epoch, logs=None):
        self._evaluate()
        shape = 4, self.x.shape[1]
        noise = tf.random.normal(shape, dtype=tf.float64)
        noise += keras.random.normal(shape, dtype="float64")
        made = [
            np.asarray(self.model(noise)),
            self.model.predict(self.x, batch_size=10, verbose=0),
        ]
        pixels = np.tile(np.concatenate(made)[:, :, None], [1, 8, 1])
        image = keras.utils.array_to_img(pixels)
        image.save(self.path.format(epoch=epoch))


class Stops(keras.callbacks.EarlyStopping):
    """One of Keras', that also writes for itself."""

    def __init__(self, path):
        super().__init__("loss", min_delta=10.0, patience=1)
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        with open(self.path, "a") as file:
            print(f"epoch {epoch}", file=file)


class Keeps(keras.callbacks.Callback):
    """Keeps what the program asks for later, and reaches nothing."""

    def on_train_begin(self, logs=None):
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(float(logs["loss"]))


class Freezes(keras.callbacks.Callback):
    """Does what other ranks cannot be given, beside writing."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        pathlib.Path(self.path).write_text("seen")
        self.model.layers[0].trainable = True


class Breaks(keras.callbacks.Callback):
    """Ends the training by an error of its own, on whoever runs it."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        pathlib.Path(self.path).write_text("broken")
        raise LookupError(f"no such row as {epoch}")


def callbacks_that_write(folder):
    """Trains with callbacks that reach outside; returns what came of it."""
    top = pathlib.Path(folder)
    x, y = rank_auto.data()
    tracker, keeps = Tracker(str(top / "runs.db")), Keeps()
    text = top / "epochs.txt"
    found = {}

    def train():
        model = rank_auto.compiled(rank_auto.dense(), "mse", "adam")
        found.update(
            rank_auto.trained(
                model,
                x,
                y,
                epochs=6,
                batch_size=20,
                validation_split=0.1,
                callbacks=[
                    tracker,
                    keeps,
                    keras.callbacks.LambdaCallback(
                        on_epoch_end=lambda epoch, _: print(
                            epoch, file=open(text, "a")
                        )
                    ),
                ],
            )
        )
        found["rate"] = float(model.optimizer.learning_rate)

    said = printed(train)
    found["drawn"] = np.random.random()
    found["kept"] = np.array(tracker.rows, float)
    found["losses"] = np.array(keeps.losses)
    database = sqlite3.connect(str(top / "runs.db"))
    for table in ("run", "batch"):
        rows = database.execute(f"select * from {table}").fetchall()
        found[table] = np.array(rows, float)
    found["lines"] = len(text.read_text().splitlines())
    stopped = rank_auto.trained(
        rank_auto.compiled(rank_auto.dense()),
        x,
        y,
        epochs=6,
        callbacks=[Stops(str(top / "stops.txt"))],
    )
    found["stopped"] = len(stopped["history"]["loss"])
    found["lines of stops"] = len((top / "stops.txt").read_text().split("\n"))
    return found, said


def callbacks_that_draw(folder):
    """Trains with a callback that saves pictures, and uses the model."""
    x, y = rank_auto.data()
    path = str(pathlib.Path(folder, "{epoch}.png"))
    draws = Draws(path, x[:80], y[:80])
    found = {}

    def train():
        model = rank_auto.compiled(rank_auto.dense(), metrics=["mae"])
        found.update(
            rank_auto.trained(model, x, y, batch_size=20, callbacks=[draws])
        )
        found["counted"] = [float(np.sum(v)) for v in model.metrics_variables]

    said = printed(train)
    found["errors"] = np.array(draws.errors)
    found["drawn"] = [
        float(tf.random.normal([])),
        float(keras.random.normal([])),
    ]
    pixels = [
        np.asarray(keras.utils.load_img(path.format(epoch=epoch)), float)
        for epoch in range(2)
    ]
    return {**found, "pixels": pixels}, said


def callbacks_on_all_ranks(folder):
    """Returns what is said of a callback, and the error of another one."""
    top = pathlib.Path(folder)
    x, y = rank_auto.data()

    def train(callback):
        model = rank_auto.compiled(rank_auto.dense())
        rank_auto.trained(model, x, y, epochs=1, callbacks=[callback])

    said = printed(lambda: train(Freezes(str(top / "seen.txt"))))
    try:
        train(Breaks(str(top / "broken.txt")))
    except LookupError as error:
        return said, str(error)
    return said, "nothing"
