"""What ranks do in `test_state_on_ranks.py`. Each returns plain values."""

import json
import shutil
import threading
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from generative import make_gan, make_vae
from keras import layers
from rank_saving import Interrupt
from rank_training import digest, start

import keras_ring as kr
from keras_ring.keras.checkpoint import checkpoint_files
from keras_ring.keras.lanes import compat
from keras_ring.keras.model import model_optimizers, model_state
from tests import tiers

X = np.random.default_rng(0).normal(size=(32, 8)).astype("float32")


def broadcast(*arguments, **settings):
    return kr.callbacks.BroadcastGlobalVariablesCallback(*arguments, **settings)


def fit(model, *data, callbacks=(), batch_size=8, **settings):
    return model.fit(
        *data,
        batch_size=batch_size,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **settings,
    )


def caught(function, *arguments, **settings):
    """Returns the class and text of what a call raises."""
    try:
        function(*arguments, **settings)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def on_rank_0(function):
    if kr.rank() == 0:
        function()
    kr.barrier(name="on_rank_0")


class Noisy(keras.Model):
    """Draws in layers, from its own generator and from that of Keras."""

    def __init__(self):
        super().__init__()
        self.dropout = layers.Dropout(0.5)
        self.noise = layers.GaussianNoise(1.0)
        self.dense = layers.Dense(1)
        self.latents = keras.random.SeedGenerator(1337)

    def call(self, x, training=False):
        x = self.noise(self.dropout(x, training=training), training=training)
        if training:
            x = x + keras.random.normal(tf.shape(x), seed=self.latents)
            x = x + keras.random.normal(tf.shape(x))
        return self.dense(x)

    def drawn(self):
        """Returns what it draws now."""
        ones = np.ones((4, 16), "float32")
        return {
            "mask": self.dropout(ones, training=True).numpy().tolist(),
            "noise": self.noise(ones, training=True).numpy().tolist(),
            "latents": keras.random.normal([9], seed=self.latents)
            .numpy()
            .tolist(),
            "keras.random": keras.random.normal([9]).numpy().tolist(),
        }

    def seeds(self):
        return [v.numpy().tolist() for v in compat.seed_variables(self)]


def make_noisy(build=True):
    model = Noisy()
    if build:
        model(np.zeros((1, 8), "float32"))
    model.compile(kr.DistributedOptimizer("sgd"), "mse")
    return model


def random_numbers():
    """What ranks draw after the broadcast, with or without the fold."""
    results = {}
    for kind in ("built", "at the first step", "again", "shared"):
        start()
        model = make_noisy(kind != "at the first step")
        settings = {"fold_rank": False} if kind == "shared" else {}
        before = [X[kr.rank() :: 2], X[kr.rank() :: 2, :1]]
        fit(model, *before, callbacks=[broadcast(**settings)])
        after_one = model.seeds()
        # Without the callback they go on; with it, they are shared again.
        fit(model, *before)
        fit(model, *before, callbacks=[broadcast(**settings)])
        results[kind] = {
            "one": after_one,
            "three": model.seeds(),
            "drawn": model.drawn(),
        }
    start()
    model = make_noisy()
    seeds = []
    for _ in range(3):
        kr.broadcast_model(model, root_rank=1)
        seeds.append(model.seeds())
    results["loop"] = {"seeds": seeds, "drawn": model.drawn()}
    results["variables"] = []
    # As programs do that were written for Horovod, the second one in their
    # first step.
    for kind in ("eager", "in a function", "shared"):
        start()
        model = make_noisy()
        settings = {"fold_rank": False} if kind == "shared" else {}

        def share(model=model, settings=settings):
            kr.broadcast_variables(model.variables, root_rank=1, **settings)

        (tf.function(share) if kind == "in a function" else share)()
        results["variables"].append(model.seeds())
    start()
    model = make_noisy()
    kr.broadcast_model(model, root_rank=1)
    results["model"] = model.seeds()
    return results


def generative(directory):
    """Models with a `train_step` and no `call`."""
    results = {}
    for make in (make_gan, make_vae):
        name = make.__name__
        start()
        keras.utils.set_random_seed(5 + kr.rank())
        model = make()
        data = kr.data.shard(X)
        history = fit(
            model,
            data,
            callbacks=[
                broadcast(),
                kr.callbacks.MetricAverageCallback(),
                kr.callbacks.ModelCheckpoint(
                    f"{directory}/{name}.weights.h5", save_weights_only=True
                ),
            ],
        ).history
        found = model_optimizers.optimizers_of(model)
        kr.checkpoint.save(model, f"{directory}/{name}", 1)
        saved = digest(model_state.state_variables(model))
        weights = digest(model.weights)
        other = make()
        step = kr.checkpoint.restore(other, f"{directory}/{name}")
        restored = digest(model_state.state_variables(other))
        ended = []
        for each in (model, other):
            fit(each, data)
            ended.append(digest(model_state.state_variables(each)))
        results[name] = {
            "history": history,
            "weights": weights,
            "step": step,
            "restored": restored == saved,
            "goes_on": ended[0] == ended[1],
            "variables": {k: len(o.variables) for k, o in found.items()},
            "iterations": {
                k: int(o.iterations)
                for k, o in model_optimizers.optimizers_of(other).items()
            },
            "seeds": [v.numpy().tolist() for v in compat.seed_variables(model)],
        }
    return results


def lazy_gan(run_eagerly):
    """Has no weights before the first step, which nobody can do in advance."""
    start()
    keras.utils.set_random_seed(5 + kr.rank())
    model = make_gan(lazy=True, run_eagerly=run_eagerly)
    history = fit(model, kr.data.shard(X), callbacks=[broadcast()]).history
    return {
        "loss": sorted(history),
        "weights": digest(model.weights),
        "iterations": int(model.g_optimizer.iterations),
        "train_step": "train_step" in vars(model),
    }


def interrupted_gan(directory):
    """Goes on within an epoch, with both optimizers."""

    def trained(*callbacks):
        start()
        model = make_gan()
        data = kr.data.shard(X)
        error = caught(
            fit, model, data, callbacks=[broadcast(), *callbacks], batch_size=4
        )
        return error[0], digest(model_state.state_variables(model))

    def backup():
        return kr.callbacks.BackupAndRestore(directory, save_freq=2)

    whole = trained()
    first = trained(backup(), Interrupt(at=3))
    second = trained(backup())
    return whole == second, first[0]


def make_normalized():
    model = keras.Sequential(
        [
            keras.Input((1,)),
            layers.Normalization(name="norm"),
            layers.Dense(1, kernel_initializer="ones"),
        ]
    )
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")
    return model


def normalization(directory):
    """Statistics that one rank alone knows, in functions traced before."""
    start()
    values = np.array([[10.0], [20.0], [30.0]], "float32")
    model = make_normalized()
    untouched = model.predict(values, verbose=0).ravel().tolist()
    if kr.rank() == 0:
        model.get_layer("norm").adapt(values)
    fit(model, values, np.zeros((3, 1)), callbacks=[broadcast()], epochs=2)
    losses = fit(model, values, np.zeros((3, 1))).history["loss"]
    shared = model.predict(values, verbose=0).ravel().tolist()
    kr.checkpoint.save(model, f"{directory}/norm", 1)
    other = make_normalized()
    other.predict(values, verbose=0)
    fit(other, values, np.zeros((3, 1)))
    kr.checkpoint.restore(other, f"{directory}/norm")
    return {
        "untouched": untouched,
        "shared": shared,
        "loss": losses,
        "restored": other.predict(values, verbose=0).ravel().tolist(),
        "restored loss": fit(other, values, np.zeros((3, 1))).history["loss"],
        "called": other(values).numpy().ravel().tolist(),
    }


class Prepared(keras.Model):
    """Has a layer that prepares data, as those of text have."""

    def __init__(self, prepare):
        super().__init__()
        self.prepare = prepare
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(x)


def vocabularies():
    """Layers that have learned something else on each rank."""
    start()
    words = np.array([["a b"], ["b c"]] if kr.rank() else [["c d"], ["d e"]])
    numbers = np.array([1, 2, 2, 3]) + kr.rank()
    made = {
        "TextVectorization": (layers.TextVectorization(8), words),
        "StringLookup": (layers.StringLookup(max_tokens=8), words.ravel()),
        "IntegerLookup": (layers.IntegerLookup(max_tokens=8), numbers),
        "Discretization": (
            layers.Discretization(num_bins=3),
            numbers.astype("float32"),
        ),
        "Normalization": (
            layers.Normalization(mean=float(kr.rank()), variance=1.0),
            None,
        ),
    }
    errors = {}
    for name, (layer, learned_from) in made.items():
        if learned_from is not None:
            layer.adapt(learned_from)
        model = Prepared(layer)
        model.compile(kr.DistributedOptimizer("sgd"), "mse")
        data = np.zeros((4, 1)), np.zeros((4, 1))
        errors[name] = caught(fit, model, *data, callbacks=[broadcast()])
        if name == "StringLookup":
            layer.set_vocabulary(kr.broadcast_object(layer.get_vocabulary()))
            errors["mended"] = caught(
                fit, model, *data, callbacks=[broadcast()]
            )
    return errors


def make_owning(seed=3):
    """A model with all that a rank may have of its own."""
    keras.utils.set_random_seed(seed)
    local = layers.Dense(6, name="local")
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(4, 3, 8)),
            local,
            layers.BatchNormalization(name="batch_norm"),
            layers.Dropout(0.3),
            layers.SimpleRNN(5, stateful=True, name="rnn"),
            layers.Dense(1),
        ]
    )
    optimizer = kr.PartialDistributedOptimizer(
        keras.optimizers.Adam(0.05), local_layers=[local]
    )
    model.compile(optimizer, "mse")
    return model


def owned_data(num=16):
    rng = np.random.default_rng(10 + kr.rank())
    x = rng.normal(size=(num, 3, 8)).astype("float32")
    return x, x[:, 0, :1]


def owned_state(directory):
    """Saved and restored: what belongs to each rank does not become rank 0's.

    Then by a job in which rank 1 was not, as far as the files tell.
    """
    start()
    data = owned_data()
    model = make_owning()
    fit(model, *data, callbacks=[broadcast()], batch_size=4)
    parts = {
        "local": model.get_layer("local").weights,
        "slots": compat.slots_of(
            model.optimizer, model.get_layer("local").trainable_variables
        ),
        "batch_norm": model.get_layer("batch_norm").non_trainable_weights,
        "rnn": [model.get_layer("rnn").states[0]],
        "seeds": compat.seed_variables(model),
        "shared": model.layers[-1].weights,
    }
    saved = {name: digest(variables) for name, variables in parts.items()}
    kr.checkpoint.save(model, directory, 1)
    before = digest(model_state.state_variables(model))
    fit(model, *data, batch_size=4)
    after = digest(model_state.state_variables(model))
    other = make_owning(seed=50 + kr.rank())
    kr.checkpoint.restore(other, directory)
    restored = digest(model_state.state_variables(other)) == before
    fit(other, *data, batch_size=4)
    goes_on = digest(model_state.state_variables(other)) == after
    # A second broadcast leaves the memory of local weights alone, too.
    fit(other, *data, callbacks=[broadcast()], batch_size=4, epochs=0)
    kept = digest(
        compat.slots_of(
            other.optimizer, other.get_layer("local").trainable_variables
        )
    )
    expected = digest(
        compat.slots_of(
            model.optimizer, model.get_layer("local").trainable_variables
        )
    )

    def forget_rank_1():
        path = Path(directory) / "step-00000001" / "manifest.json"
        manifest = json.loads(path.read_text())
        del manifest["files"]["rank-1.npz"]
        manifest["ranks"] = 1
        path.write_text(json.dumps(manifest))

    on_rank_0(forget_rank_1)
    grown = make_owning(seed=50 + kr.rank())
    kr.checkpoint.restore(grown, directory)
    # Before the next one: that of `keras.random` is the same for all models.
    seeds_of_grown = digest(compat.seed_variables(grown))
    shared = make_owning(seed=50 + kr.rank())
    kr.checkpoint.restore(shared, directory, fold_rank=False)
    return {
        "saved": saved,
        "restored": restored,
        "goes_on": goes_on,
        "kept": kept == expected,
        "grown": {
            "weights": digest(grown.weights),
            "seeds": seeds_of_grown,
        },
        "shared": digest(compat.seed_variables(shared)),
    }


class Notes(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)


# Name -> when it is saved, at which batch it ends, and whether the backup is
# the first callback and asynchronous.
RESUMED = {
    "epoch": ("epoch", 8, True),
    "batch, last": (4, 5, False),
    # These where a file that saves or restores has changed.
    "epoch, last": ("epoch", 8, False),
    "batch": (4, 5, True),
}
if not tiers.pulled("saves"):
    RESUMED = dict(list(RESUMED.items())[:2])


def resumed(directory):
    """Goes on with what each rank owns, whatever the order of callbacks.

    And does nothing again that was done after batches that are passed over.
    """
    start()
    data = owned_data(24)

    def trained(path, save_freq, stop_at, backup_first):
        model = make_owning()
        backup = kr.callbacks.BackupAndRestore(
            path, save_freq, asynchronous=backup_first
        )
        notes = Notes()
        callbacks = (
            [backup, broadcast()] if backup_first else [broadcast(), backup]
        )
        callbacks = [
            kr.callbacks.ModelCheckpoint(
                path + "-{epoch}-{batch}.weights.h5",
                save_freq=1,
                save_weights_only=True,
            ),
            keras.callbacks.ModelCheckpoint(
                path + "-keras-{epoch}-{batch}.weights.h5",
                save_freq=1,
                save_weights_only=True,
            ),
            *callbacks,
            kr.callbacks.RankZeroOnly(notes),
            *([Interrupt(stop_at)] if stop_at else []),
        ]
        caught(fit, model, *data, callbacks=callbacks, batch_size=4, epochs=2)
        return digest(model_state.state_variables(model)), notes.batches

    def of_second_batch(path):
        kr.barrier(name="written")
        found = []
        for template in ("-1-2.weights.h5", "-keras-1-2.weights.h5"):
            model = make_owning()
            model.load_weights(path + template)
            found.append(digest(model.layers[-1].weights))
        return found

    expected, _ = trained(f"{directory}/whole", "epoch", None, False)
    results = {}
    for name, (save_freq, stop_at, backup_first) in RESUMED.items():
        path = f"{directory}/{name.replace(', ', '-')}"
        _, first = trained(path, save_freq, stop_at, backup_first)
        file = of_second_batch(path)
        ended, second = trained(path, save_freq, None, backup_first)
        results[name] = {
            "same": ended == expected,
            "file": file == of_second_batch(path),
            "batches": (first, second),
        }
    return results


class Slow(Notes):
    """Gives rank 0's thread the time to fail."""

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        time.sleep(0.1)


def asynchronous(directory):
    """Ranks train while rank 0 writes; what it could not is told later."""
    start()
    data = owned_data()
    model = make_owning()
    fit(model, *data, callbacks=[broadcast()], batch_size=4)
    before = digest(model_state.state_variables(model))
    write = checkpoint_files.write
    may_write = threading.Event()

    def write_late(*arguments):
        may_write.wait(100)
        return write(*arguments)

    checkpoint_files.write = write_late
    kr.checkpoint.save(model, f"{directory}/late", 1, asynchronous=True)
    fit(model, *data, batch_size=4)
    kr.barrier(name="trained")
    not_yet = not Path(f"{directory}/late").exists()
    kr.barrier(name="looked")
    may_write.set()
    kr.checkpoint.wait()
    checkpoint_files.write = write
    there = [path.name for path in Path(f"{directory}/late").iterdir()]
    other = make_owning(seed=9)
    kr.checkpoint.restore(other, f"{directory}/late")
    errors = []
    for then in (
        lambda: kr.checkpoint.save(model, f"{directory}/late", 2),
        lambda: kr.checkpoint.restore(model, f"{directory}/late"),
        kr.checkpoint.wait,
    ):
        kr.checkpoint.save(model, "/proc/x", 7, asynchronous=True)
        errors.append(caught(then))
    backup = kr.callbacks.BackupAndRestore(
        "/proc/x", save_freq=1, asynchronous=True
    )
    errors.append(caught(fit, model, *data, callbacks=[backup], batch_size=4))
    # It is told once.
    kr.checkpoint.wait()
    notes = Slow()
    backup = kr.callbacks.BackupAndRestore(
        "/proc/x", save_freq=3, asynchronous=True
    )
    errors.append(
        caught(
            fit, model, *owned_data(24), callbacks=[notes, backup], batch_size=4
        )
    )
    return {
        "not_yet": not_yet,
        "there": there,
        "same": digest(model_state.state_variables(other)) == before,
        "changed": digest(model_state.state_variables(model)) != before,
        "errors": errors,
        "batches": notes.batches,
    }


def copied(directory):
    """A checkpoint in two places, of which the first is lost or damaged."""
    start()
    data = owned_data()
    model = make_owning()
    fit(model, *data, callbacks=[broadcast()], batch_size=4)
    digests = {}
    for step in (1, 2, 3):
        kr.checkpoint.save(
            model,
            f"{directory}/first",
            step,
            keep=2,
            asynchronous=step == 2,
            copy_dir=f"{directory}/second",
        )
        digests[step] = digest(model_state.state_variables(model))
        fit(model, *data, batch_size=4)
    found = [restored_of(directory, digests)]
    if kr.rank() == 0:
        # Another one than the newest, so that both places are looked at.
        shutil.rmtree(f"{directory}/second/step-00000003")
        file = Path(f"{directory}/first/step-00000003/state.npz")
        file.write_bytes(file.read_bytes()[:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.append(restored_of(directory, digests))
    if kr.rank() == 0:
        shutil.rmtree(f"{directory}/first")
    found.append(restored_of(directory, digests))
    there = [
        sorted(path.name for path in Path(directory, name).glob("*"))
        for name in ("first", "second")
    ]
    same = caught(
        kr.checkpoint.save, model, directory, 1, copy_dir=f"{directory}/."
    )
    fit(
        model,
        *data,
        batch_size=4,
        callbacks=[
            kr.callbacks.BackupAndRestore(
                f"{directory}/a", copy_dir=f"{directory}/b"
            )
        ],
    )
    left = [Path(directory, name).exists() for name in ("a", "b")]
    return {"found": found, "there": there, "same": same, "left": left}


def restored_of(directory, digests):
    """Returns the step that was restored, and whether it is what was saved."""
    other = make_owning(seed=9)
    step = kr.checkpoint.restore(
        other, f"{directory}/first", copy_dir=f"{directory}/second"
    )
    same = digest(model_state.state_variables(other)) == digests[step]
    kr.barrier(name=f"restored {directory}")
    return step, same


def averaged(directory):
    """Moving statistics of all ranks, in files and nowhere else."""
    start()
    model = make_owning()
    fit(model, *owned_data(), callbacks=[broadcast()], batch_size=4)
    layer = model.get_layer("batch_norm")
    mine = [layer.moving_mean.numpy(), layer.moving_variance.numpy()]
    kr.checkpoint.save(
        model, f"{directory}/checkpoints", 1, average_statistics=True
    )
    callback = kr.callbacks.ModelCheckpoint(
        f"{directory}/averaged.weights.h5",
        save_weights_only=True,
        average_statistics=True,
    )
    callback.set_model(model)
    callback.on_epoch_end(0, {})
    kr.barrier(name="saved")
    kept = [layer.moving_mean.numpy(), layer.moving_variance.numpy()]
    found = []
    for load in ("checkpoints", "averaged.weights.h5"):
        other = make_owning(seed=9)
        if load == "checkpoints":
            kr.checkpoint.restore(other, f"{directory}/{load}")
        else:
            other.load_weights(f"{directory}/{load}")
        other = other.get_layer("batch_norm")
        found.append([other.moving_mean.numpy(), other.moving_variance.numpy()])
    return {
        "mine": mine,
        "kept": all((a == b).all() for a, b in zip(mine, kept, strict=True)),
        "found": found,
    }


def arguments():
    """`device` and `local_variables`, in the places that Horovod has them."""
    start()
    data = X[kr.rank() :: 2], X[kr.rank() :: 2, :1]

    def different(**settings):
        model = keras.Sequential(
            [keras.Input((8,)), layers.Dense(4), layers.Dense(1)]
        )
        model.compile(kr.DistributedOptimizer("sgd"), "mse")
        model.layers[0].kernel.assign_add(
            keras.ops.full((8, 4), float(kr.rank()))
        )
        own_kernel = model.layers[0].kernel.numpy()
        arguments = settings.pop("arguments")
        if "local" in settings:
            arguments = (*arguments, [model.layers[0].kernel])
        callback = broadcast(*arguments)

        class Spoil(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if settings.get("spoil"):
                    model.layers[1].bias.assign_add([float(kr.rank())])

        class Look(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                self.kernel = model.layers[0].kernel.numpy()

        look = Look()
        error = caught(fit, model, *data, callbacks=[callback, look, Spoil()])
        return error[0], bool((look.kernel == own_kernel).all())

    return {
        "device": different(arguments=(0, "/cpu:0")),
        "checked": different(arguments=(0, "/cpu:0"), spoil=True),
        "local": different(arguments=(0, ""), local=True),
        "bool": caught(broadcast, 0, False),
    }
