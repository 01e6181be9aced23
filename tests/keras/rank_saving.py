"""What ranks do in `test_saving_on_ranks.py`. Each returns plain values."""

import contextlib
import os
import resource
import shutil
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from rank_training import digest, make_data, sparse_loss, start
from tiny_disk import TinyDisk

import keras_ring as kr
from keras_ring.keras.checkpoint import checkpoint_files, saved_files
from keras_ring.keras.model import model_state
from tests import tiers
from tests.harness import notify


def state(model):
    return digest(model_state.state_variables(model))


def make_model(optimizer=None, seed=11, **settings):
    """A model with dropout, so that seed generators matter."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((10,)),
            keras.layers.Dense(32, activation="tanh"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(4),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(optimizer or keras.optimizers.Adam(0.01)),
        sparse_loss(),
        metrics=["accuracy"],
        **settings,
    )
    return model


def fit(model, x, y, epochs=1, callbacks=(), **settings):
    settings = {"batch_size": 8, "shuffle": False, "verbose": 0, **settings}
    return model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **settings)


def caught(function, *arguments, **settings):
    """Returns the class and text of what a call raises."""
    try:
        function(*arguments, **settings)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def on_rank_0(function, *arguments):
    """Calls a function on rank 0; all wait for it."""
    if kr.rank() == 0:
        function(*arguments)
    kr.barrier(name="on_rank_0")


def round_trip(directory):
    """Saves, goes on; restores into another model, and goes on from there."""
    start()
    x, y = kr.data.shard(make_data(64))
    model = make_model()
    fit(model, x, y)
    kr.checkpoint.save(model, directory, 4)
    saved = state(model)
    # Draws from the seed generator that all of Keras shares.
    keras.random.normal([2])
    fit(model, x, y)
    after = state(model), keras.random.normal([2]).numpy().tolist()

    other = make_model(seed=77 + kr.rank())
    different = state(other) != saved
    step = kr.checkpoint.restore(other, directory)
    restored = state(other)
    keras.random.normal([2])
    fit(other, x, y)
    other_after = state(other), keras.random.normal([2]).numpy().tolist()
    return {
        "step": step,
        "different": different,
        "same": restored == saved,
        "goes_on": other_after == after,
        "state": restored,
        "none": kr.checkpoint.restore(other, directory + "-not-there"),
    }


class OfAllTypes(keras.layers.Layer):
    """Has variables of types that NumPy's files do not know."""

    def build(self, input_shape):
        self.odd = [
            self.add_weight((3,), "zeros", dtype, trainable=False)
            for dtype in ("bfloat16", "int32", "bool", "uint8", "float64")
        ]

    def call(self, x):
        return x


def types(directory):
    """Variables of many types, and a loss scale."""
    start()
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential(
        [keras.Input((10,)), OfAllTypes(), keras.layers.Dense(4)]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
        sparse_loss(),
    )
    keras.config.set_dtype_policy("float32")
    odd = model.layers[0].odd
    for variable in odd:
        variable.assign(np.array([1, 0, 1]))
    fit(model, *kr.data.shard(make_data(32)))
    saved = state(model)
    kr.checkpoint.save(model, directory, 0)
    for variable in model_state.state_variables(model):
        variable.assign(keras.ops.zeros_like(variable))
    step = kr.checkpoint.restore(model, directory)
    values = [v.numpy().astype("float32").tolist() for v in odd]
    return step, state(model) == saved, values


def damaged(directory):
    """The newest checkpoint is damaged, then all of them."""
    start()
    model = make_model()
    states = []
    for step in (10, 20, 30):
        model.layers[0].kernel.assign_add(
            keras.ops.ones_like(model.layers[0].kernel)
        )
        kr.checkpoint.save(model, directory, step)
        states.append(state(model))

    def cut(step):
        path = f"{directory}/step-{step:08d}/state.npz"
        os.truncate(path, os.path.getsize(path) // 2)

    on_rank_0(cut, 30)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        step = kr.checkpoint.restore(model, directory)
    same = state(model) == states[1]
    on_rank_0(cut, 20)
    on_rank_0(shutil.rmtree, f"{directory}/step-00000010")
    error = caught(kr.checkpoint.restore, model, directory)
    return step, same, [str(w.message) for w in warned], error


def failures(directory):
    """What rank 0 cannot do is one error on all ranks."""
    start()
    model = make_model()
    kr.checkpoint.save(model, directory, 1)
    errors = {}

    def fit_with(callback):
        data = kr.data.shard(make_data(16))
        return caught(fit, model, *data, callbacks=[callback])

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if kr.rank() == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    errors["full"] = caught(kr.checkpoint.save, model, directory, 2)
    for name in ("model.keras", "model.weights.h5"):
        errors[f"full {name}"] = fit_with(
            kr.callbacks.ModelCheckpoint(
                f"{directory}-full/{name}", save_weights_only="w" in name
            )
        )
    errors["full backup"] = fit_with(
        kr.callbacks.BackupAndRestore(f"{directory}-full", save_freq=1)
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    on_rank_0(lambda: open(directory + "-file", "w").close())
    errors["file"] = caught(kr.checkpoint.save, model, directory + "-file", 2)
    errors["read-only"] = caught(kr.checkpoint.save, model, "/proc/x", 2)
    errors["callback"] = fit_with(
        kr.callbacks.ModelCheckpoint("/proc/x/model.keras")
    )
    errors["read-only backup"] = fit_with(
        kr.callbacks.BackupAndRestore("/proc/x", save_freq=1)
    )
    other = keras.Sequential([keras.Input((10,)), keras.layers.Dense(3)])
    errors["model"] = caught(kr.checkpoint.restore, other, directory)
    errors["unbuilt"] = caught(
        kr.checkpoint.save,
        keras.Sequential([keras.layers.Dense(3)]),
        directory,
        2,
    )
    # The job goes on.
    step = kr.checkpoint.restore(model, directory)
    kr.checkpoint.save(model, directory, 2)
    kr.barrier(name="listed")
    left = [os.listdir(f"{directory}{suffix}") for suffix in ("", "-full")]
    return errors, step, [sorted(each) for each in left]


def full_disk(directory):
    """Rank 0's disk is full, in earnest, and later read-only.

    Each way of saving has something there already. Then it is tried with no
    page left, with one, and so on, until it can: so it fails at each of the
    files that it writes, and each time in the middle of one.
    """
    start()
    disk = None
    if kr.rank() == 0:
        with contextlib.suppress(PermissionError):
            disk = TinyDisk(directory, 256)
    if not kr.broadcast_object(disk is not None):
        return None
    model = make_model()
    data = kr.data.shard(make_data(16))
    fit(model, *data)
    results = {}
    for name in SAVES:
        path = f"{directory}/{name}"
        before = _save(model, path, 1)
        seen = []
        for num_pages in range(64):
            on_rank_0(lambda n=num_pages: disk.leave(n))
            error = _save(model, path, 2)
            kr.barrier(name="tried")
            seen.append((error, _files(directory), _whole(path)))
            kr.barrier(name="seen")
            if error[0] == "nothing":
                break
        on_rank_0(lambda: disk.clear())
        results[name] = before, seen, _save(model, path, 3)
    # Another thread does not see this disk, if it was there before.
    backup = kr.callbacks.BackupAndRestore(
        f"{directory}/backup", save_freq=1, asynchronous=False
    )
    on_rank_0(lambda: disk.leave(0))
    results["backup"] = caught(fit, model, *data, callbacks=[backup])
    on_rank_0(lambda: disk.make_read_only())
    results["read-only"] = [
        _save(model, f"{directory}/{name}", 4) for name in SAVES
    ]
    kr.barrier(name="done")
    restored = kr.checkpoint.restore(model, f"{directory}/checkpoints")
    return results, restored


SAVES = ("checkpoints", "model.keras", "model.weights.h5")


def _save(model, path, step):
    """Saves in one of the ways; returns the class and text of the error."""
    kernel = model.layers[0].kernel
    kernel.assign(keras.ops.full(kernel.shape, step))
    if path.endswith("checkpoints"):
        return caught(kr.checkpoint.save, model, path, step)
    callback = kr.callbacks.ModelCheckpoint(
        path, save_weights_only="weights" in path
    )
    callback.set_model(model)
    return caught(callback.on_epoch_end, step, {})


def _files(directory):
    """What rank 0 has there; the others do not see its disk."""
    found = sorted(
        str(path.relative_to(directory))
        for path in Path(directory).rglob("*")
        if path.name != "filler"
    )
    return kr.broadcast_object(found)


def _whole(path):
    """Whether what is there is what its manifest says, on rank 0's disk."""
    whole = None
    if kr.rank() == 0:
        if path.endswith("checkpoints"):
            found = checkpoint_files.find(Path(path))
            whole = [checkpoint_files.read_manifest(c)["step"] for c in found]
        else:
            saved_files.require_whole(Path(path))
            whole = saved_files.described(Path(path))["sha256"]
    return kr.broadcast_object(whole)


class Interrupted(Exception):
    pass


class Interrupt(keras.callbacks.Callback):
    """Ends the training as a preemption would, on all ranks."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.seen = 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.at:
            raise Interrupted


class Decay(keras.callbacks.Callback):
    """Changes the learning rate at the ends of batches and epochs."""

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(optimizer.learning_rate) * 0.99

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(optimizer.learning_rate) * 0.9


RESUMES = {
    # How often to save, after which batch to interrupt, and how to train. An
    # epoch has 6 batches on each rank.
    "epoch": ("epoch", 9, {}),
    "warm-up": (5, 8, {"warmup": True}),
    "several steps in one": (4, 3, {"steps_per_execution": 2}),
    "accumulation over epochs": ("epoch", 8, {"accumulation": 4}),
    "interrupted while it passes over batches": (4, 5, {"again": 2}),
    # These where a file that saves or restores has changed.
    "within the second epoch": (4, 11, {}),
    "at the last batch of an epoch": (6, 8, {}),
    "eager": (4, 5, {"run_eagerly": True}),
    "accumulation": (5, 7, {"accumulation": 4}),
    "interrupted twice": (4, 5, {"again": 9}),
}
if not tiers.pulled("saves"):
    RESUMES = dict(list(RESUMES.items())[:5])


def _train(data, backup, interrupt, settings):
    """Trains in what could be a new process; returns how it ended."""
    start()
    settings = dict(settings)
    accumulation = settings.pop("accumulation", None)
    warmup = settings.pop("warmup", False)
    optimizer = (
        keras.optimizers.SGD(0.1, momentum=0.9)
        if warmup
        else keras.optimizers.Adam(
            0.01, gradient_accumulation_steps=accumulation
        )
    )
    model = make_model(optimizer, **settings)
    if data == "tf.data":
        x = tf.data.Dataset.from_tensor_slices(make_data(96))
        x = kr.data.shard(x, shuffle=True).batch(8)
        y, batch_size = None, None
    else:
        x, y = kr.data.shard(make_data(96))
        batch_size = 8
    callbacks = [
        Decay(),
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.MetricAverageCallback(),
        *([backup] if backup else []),
        *([] if warmup or accumulation else [Decay()]),
        *([Interrupt(interrupt)] if interrupt else []),
    ]
    if warmup:
        callbacks[0] = kr.callbacks.LearningRateWarmupCallback(0.1, 2)
    try:
        history = fit(
            model, x, y, epochs=2, callbacks=callbacks, batch_size=batch_size
        )
    except Interrupted:
        return None
    weights = digest([*model.weights, *model.optimizer.variables])
    # Accumulated gradients are those of each rank.
    return digest(model.weights), weights, history.history


def resumes(directory):
    """Interrupted trainings, and the same without an interruption."""
    results = {}
    uninterrupted = {}
    for name, (save_freq, at, settings) in RESUMES.items():
        data = "arrays" if "accumulation" in settings else "tf.data"
        path = f"{directory}/{name.replace(' ', '-')}"
        settings = dict(settings)
        again = settings.pop("again", None)
        key = str((data, settings))
        if key not in uninterrupted:
            uninterrupted[key] = _train(data, None, None, settings)
        *expected, history = uninterrupted[key]
        for interrupt in (at, again):
            if interrupt:
                backup = kr.callbacks.BackupAndRestore(path, save_freq)
                ended = _train(data, backup, interrupt, settings)
                assert ended is None, name
        kr.barrier(name="interrupted")
        saved = sorted(os.listdir(path))
        kr.barrier(name="seen")
        backup = kr.callbacks.BackupAndRestore(path, save_freq)
        *resumed, rest = _train(data, backup, None, settings)
        results[name] = {
            "saved": saved,
            "resumed": (resumed, rest),
            # The history has the epochs since.
            "expected": (
                expected,
                {
                    key: values[-len(rest["loss"]) :]
                    for key, values in history.items()
                },
            ),
            "left": os.path.exists(path),
        }
    return results


def keeps_the_end(directory):
    """A training that ends keeps its last state if it is told to."""
    start()
    x, y = kr.data.shard(make_data(64))
    for epochs in (1, 3):
        model = make_model()
        backup = kr.callbacks.BackupAndRestore(
            directory, delete_checkpoint=False
        )
        history = fit(model, x, y, epochs=epochs, callbacks=[backup])
    plain = make_model()
    fit(plain, x, y, epochs=3)
    return history.epoch, state(model) == state(plain)


def other_steps(directory):
    """The number of steps in one call differs between the runs."""
    start()
    x, y = kr.data.shard(make_data(96))
    backup = kr.callbacks.BackupAndRestore(directory, 3)
    caught(fit, make_model(), x, y, callbacks=[backup, Interrupt(4)])
    return caught(
        fit,
        make_model(steps_per_execution=2),
        x,
        y,
        callbacks=[kr.callbacks.BackupAndRestore(directory, 3)],
    )


class Notes(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls = []

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append((epoch, sorted(logs), self.params["epochs"]))


def model_checkpoint(directory):
    """The best model by what only all ranks together know."""
    start()
    # Each rank has the labels of two classes; which are best for one are the
    # worst for the other.
    x, y = make_data(64)
    part = (y < 2) if kr.rank() == 0 else (y >= 2)
    validation = x[part], y[part]
    model = make_model(keras.optimizers.SGD(0.5))
    best = kr.callbacks.ModelCheckpoint(
        f"{directory}/best/{{epoch:02d}}.keras",
        monitor="val_loss",
        save_best_only=True,
    )
    weights = kr.callbacks.ModelCheckpoint(
        f"{directory}/latest.weights.h5", save_weights_only=True, save_freq=3
    )
    notes = Notes()
    history = fit(
        model,
        *kr.data.shard((x, y)),
        epochs=6,
        validation_data=validation,
        callbacks=[
            best,
            weights,
            kr.callbacks.RankZeroOnly(notes),
            kr.callbacks.RankZeroOnly(
                keras.callbacks.CSVLogger(f"{directory}/rank-{kr.rank()}.csv")
            ),
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
        ],
    )
    kr.barrier(name="saved")
    return {
        "best": best.best,
        "val_loss": history.history["val_loss"],
        "files": sorted(os.listdir(directory)),
        "models": sorted(os.listdir(f"{directory}/best")),
        "notes": notes.calls,
    }


def portable(directory):
    """Saves what a process without keras_ring will open."""
    start()
    x, y = kr.data.shard(make_data(64))
    model = make_model()
    fit(model, x, y)
    if kr.rank() == 0:
        model.save(f"{directory}/model.keras")
        model.save_weights(f"{directory}/model.weights.h5")
        model.export(f"{directory}/exported", verbose=False)
    kr.barrier(name="saved")
    loaded = kr.load_model(f"{directory}/model.keras")
    same = digest([*loaded.weights, *loaded.optimizer.variables]) == digest(
        [*model.weights, *model.optimizer.variables]
    )
    loaded.optimizer.learning_rate = 0.5
    fit(loaded, x, y)
    whole = make_data(64)
    return {
        "same": same,
        "predictions": model.predict(whole[0], verbose=0),
        "iterations": int(model.optimizer.iterations),
        "velocity": digest(model.optimizer.variables[2:]),
        "trained": digest(loaded.weights),
    }


def restore_only(directory):
    start()
    model = make_model()
    step = kr.checkpoint.restore(model, directory)
    return step, state(model), float(model.layers[0].kernel[0, 0])


def saves_until_killed(directory):
    """Saves without end; the kernel says which step it is."""
    start()
    model = make_model()
    kernel = model.layers[0].kernel
    for step in range(1, 10_000):
        kernel.assign(keras.ops.full(kernel.shape, step))
        kr.checkpoint.save(model, directory, step, keep=2)
        if step == 2:
            notify("saving")
