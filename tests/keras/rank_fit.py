"""What ranks do in `test_fit_on_ranks.py`. Each returns plain values."""

import contextlib
import io
from unittest import mock

import keras
import numpy as np
import rank_inference
import rank_layers
from rank_data import warnings_of_absl
from rank_training import make_classifier, make_data, sparse_loss, start

import keras_ring as kr

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
