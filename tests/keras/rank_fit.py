"""What ranks do in `test_fit_on_ranks.py`. Each returns plain values."""

import contextlib
import io
import re
import time
from unittest import mock

import keras
import numpy as np
import rank_inference
import rank_layers
import tensorflow as tf
from rank_data import warnings_of_absl
from rank_training import make_classifier, make_data, sparse_loss, start

import keras_ring as kr
from keras_ring.keras.fit.watch import Watch

MORE_CALLS = (rank_inference, rank_layers)


def _model():
    model = make_classifier()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        sparse_loss(),
        metrics=["accuracy"],
    )
    saves = []
    for name in ("save", "save_weights"):
        save = getattr(model, name)

        def counted(*args, _name=name, _save=save, **kwargs):
            saves.append(_name)
            return _save(*args, **kwargs)

        object.__setattr__(model, name, counted)
    return model, saves


def _fit(model, epochs, callbacks, **arguments):
    arguments = {"verbose": 1, "validation_split": 0.25, **arguments}
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        history = model.fit(
            *kr.data.shard(make_data(64)),
            epochs=epochs,
            callbacks=[
                kr.callbacks.BroadcastGlobalVariablesCallback(),
                kr.callbacks.MetricAverageCallback(),
                *callbacks,
            ],
            **arguments,
        )
    return len(history.epoch), shown.getvalue()


def plain_writers(folder):
    """Callbacks as they are in a program for one process."""
    start()
    model, saves = _model()
    best = keras.callbacks.ModelCheckpoint(
        f"{folder}/best.keras", monitor="val_loss", save_best_only=True
    )
    each = keras.callbacks.CSVLogger(f"{folder}/each-{kr.rank()}.csv")
    board = keras.callbacks.TensorBoard(f"{folder}/board", write_graph=False)
    # What writes scalars is in a package of its own.
    board._summary_module = mock.MagicMock()
    with warnings_of_absl() as lines:
        _, shown = _fit(
            model,
            3,
            [
                best,
                keras.callbacks.CSVLogger(f"{folder}/log.csv"),
                board,
                kr.callbacks.EveryRank(each),
                kr.callbacks.ModelCheckpoint(f"{folder}/ours.keras"),
                kr.callbacks.RankZeroOnly(
                    keras.callbacks.CSVLogger(f"{folder}/zero.csv")
                ),
            ],
        )
    kr.barrier(name="written")
    loaded = keras.models.load_model(f"{folder}/best.keras")
    with contextlib.redirect_stdout(io.StringIO()) as evaluated:
        model.predict(make_data(8)[0])
    return {
        "shown": len(shown) + len(evaluated.getvalue()),
        "saves": saves,
        "best": best.best,
        "scalars": board._summary_module.scalar.call_count,
        "lines": [line for line in lines if "alone writes" in line],
        "loaded": [w.tolist() for w in loaded.get_weights()],
    }


def plain_backup(folder):
    """Is interrupted, and goes on, with Keras' own callback."""
    epochs = []
    for total in (2, 5):
        start()
        model, _ = _model()
        backup = keras.callbacks.BackupAndRestore(
            f"{folder}/backup", delete_checkpoint=total == 5
        )
        epochs.append(_fit(model, total, [backup], verbose=0)[0])
        kr.barrier(name="interrupted")
    return epochs


def models_of_ranks(folder):
    """Each rank trains a model of its own, and says so."""
    start()
    model = make_classifier()
    model.compile("sgd", sparse_loss())
    path = f"{folder}/rank-{kr.rank()}.keras"
    with kr.allow_local_updates():
        model.fit(
            *make_data(16),
            verbose=0,
            callbacks=[keras.callbacks.ModelCheckpoint(path)],
        )
    saved = keras.models.load_model(path)
    return all(
        np.array_equal(a, b)
        for a, b in zip(saved.get_weights(), model.get_weights(), strict=True)
    )


def _slow_data(num):
    """Batches for which rank 1 sleeps."""

    def slow(features):
        time.sleep(0.03 * kr.rank())
        return features

    data = tf.data.Dataset.from_tensor_slices(make_data(num)).batch(4)
    return data.map(
        lambda x, y: (
            tf.ensure_shape(tf.py_function(slow, [x], x.dtype), x.shape),
            y,
        )
    )


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(kind):
    """What `fit` shows; rank 1 has a slow input pipeline."""
    start()
    model, _ = _model()

    data = _slow_data(40)
    callbacks = [kr.callbacks.BroadcastGlobalVariablesCallback()]
    if kind == "off":
        callbacks.append(kr.callbacks.Progress(enabled=False))
    if kind == "keras":
        callbacks.append(keras.callbacks.ProgbarLogger())
    if kind == "alone":
        # Without the exchange of all ranks.
        kr.broadcast_model(model)
        callbacks = []
    stream = _Terminal() if kind == "terminal" else io.StringIO()
    broken = (
        mock.patch.object(Watch, "step_begin", side_effect=ZeroDivisionError)
        if kind == "broken" and kr.rank() == 0
        else contextlib.nullcontext()
    )
    with contextlib.redirect_stdout(stream), broken:
        model.fit(
            data,
            epochs=2,
            shuffle=False,
            verbose=0 if kind == "quiet" and kr.rank() == 0 else "auto",
            callbacks=callbacks,
        )
    return stream.getvalue()


class _Batches(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return make_data(4)


def parts_of_data(folder):
    """What `fit` says of the data it is given, by their kind."""
    start()
    x, y = make_data(31)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    if kr.rank() == 0:
        for number in range(2):
            with tf.io.TFRecordWriter(f"{folder}/{number}.part") as writer:
                for _ in range(15 + number):
                    writer.write(b"")
    kr.barrier()
    files = kr.data.shard(files=f"{folder}/*.part", uneven="drop")
    batches = ((x[i : i + 2], y[i : i + 2]) for i in range(0, 16, 2))
    arrays = kr.data.shard((x, y), shuffle=True)
    given = {
        "arrays": arrays,
        "dropped": kr.data.shard((x, y), uneven="drop"),
        "even": kr.data.shard((x[:30], y[:30])),
        "dataset": (kr.data.shard(dataset, shuffle=8).batch(4).prefetch(1),),
        "endless": (kr.data.shard(dataset.repeat()).batch(4),),
        "files": (files.map(lambda _: (x[0], y[0])).batch(4),),
        "batches": (kr.data.shard(_Batches()),),
        "generator": (kr.data.shard(batches),),
        "own": make_data(8),
        # An array is not the one that had its place.
        "copied": (arrays[0] + 0.0, arrays[1]),
    }
    del arrays
    said = {}
    model, _ = _model()
    kr.broadcast_model(model)
    for kind, data in given.items():
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            model.fit(*data, steps_per_epoch=2, verbose="auto")
        found = re.findall("^keras_ring: data: (.*)$", stream.getvalue(), re.M)
        said[kind] = found
    return said


def shown_to_one_rank():
    """What the first `fit` of a process shows, and its counters."""
    kr.init()
    model, _ = _model()
    stream = _Terminal()
    with contextlib.redirect_stdout(stream):
        model.fit(*make_data(16), callbacks=[kr.callbacks.Progress()])
    return stream.getvalue(), kr.metrics()["fit_steps"]


def input_pipeline(steps_per_execution):
    """A training, with and without a measurement in its middle."""
    trained = []
    shown = io.StringIO()
    for callbacks in ([], [kr.callbacks.InputPipeline(synthetic_steps=8)]):
        start()
        model = make_classifier()
        # What is drawn, and what is remembered, must be as it was.
        model.add(keras.layers.Dropout(0.5, seed=3))
        model.compile(
            kr.DistributedOptimizer(keras.optimizers.Adam(0.01)),
            sparse_loss(),
            metrics=["accuracy"],
            steps_per_execution=steps_per_execution,
        )
        before = kr.metrics()["samples"]
        with contextlib.redirect_stdout(shown):
            history = model.fit(
                _slow_data(96),
                epochs=2,
                shuffle=False,
                verbose=0,
                callbacks=[
                    kr.callbacks.BroadcastGlobalVariablesCallback(),
                    *callbacks,
                ],
            )
        weights = [weight.tolist() for weight in model.get_weights()]
        samples = kr.metrics()["samples"] - before
        trained.append((history.history, weights, samples))
    (measured,) = callbacks
    return trained[0] == trained[1], samples, measured.results, shown.getvalue()
