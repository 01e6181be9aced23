"""What callbacks cost a `fit`, per step and per epoch.

    keras-ring run -np 2 -- python -m benchmarks.callback_cost

A net of many small layers, whose steps are short unless `--width` and `--batch`
say otherwise, so that what callbacks cost is large beside them. Each set of
callbacks is measured in turn, several times over, because machines are noisy;
the first `fit` of each is not counted. Prints, as JSON or a table, the medians
of rank 0 in milliseconds.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
from tabulate import tabulate

import keras_ring as kr
from keras_ring.launch.cli.bench_arguments import parse_count

_RATE = 1e-4


def recommended():
    """Returns the callbacks that a program should have."""
    return [
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.MetricAverageCallback(),
    ]


def warmup(**settings):
    """Returns a warm-up that never ends."""
    return [
        kr.callbacks.LearningRateWarmupCallback(
            _RATE, warmup_epochs=9999, **settings
        )
    ]


class LooksAtEachBatch(keras.callbacks.Callback):
    """What Keras itself takes for a callback that sees the loss of a batch."""

    def on_train_batch_end(self, batch, logs=None):
        """Takes the loss."""
        self.loss = logs["loss"]


def saving(folder):
    """Returns the callbacks that save at the end of each epoch."""
    return [
        kr.callbacks.BackupAndRestore(str(folder / "backup")),
        kr.callbacks.ModelCheckpoint(str(folder / "model.keras")),
    ]


def sets(folder):
    """Returns name -> what makes the callbacks."""

    def all_but_files():
        nan = keras.callbacks.TerminateOnNaN()
        return [*recommended(), nan, *warmup()]

    return {
        "none": lambda: [],
        "Broadcast..., MetricAverage...": recommended,
        "one that looks at each batch": lambda: [LooksAtEachBatch()],
        "TerminateOnNaN": lambda: [keras.callbacks.TerminateOnNaN()],
        "LearningRateWarmup..., no correction": lambda: warmup(
            momentum_correction=False
        ),
        "LearningRateWarmup...": warmup,
        "all of these": all_but_files,
        "and BackupAndRestore, ModelCheckpoint": lambda: [
            *all_but_files(),
            *saving(folder),
        ],
    }


def make_model(layers, width):
    """Returns a net of `layers` layers, each with two momentums."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((width,)),
            *[keras.layers.Dense(width) for _ in range(layers)],
            keras.layers.Dense(1),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(_RATE, momentum=0.9)),
        "mse",
        metrics=["mae"],
    )
    return model


def fit(model, callbacks, batch, steps, epochs):
    """Returns the seconds of an epoch of `steps` steps."""
    width = model.input_shape[-1]
    rows = np.random.default_rng(kr.rank()).normal(size=(batch, width))
    x = np.tile(rows.astype("float32"), (steps, 1))
    began = time.perf_counter()
    model.fit(
        x,
        x[:, :1],
        batch_size=batch,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )
    return (time.perf_counter() - began) / epochs


def measured(callbacks, options):
    """Returns, for each set, milliseconds per step and per short epoch."""
    models = {
        name: make_model(options.layers, options.width) for name in callbacks
    }
    batch, steps, epochs = options.batch, options.steps, options.epochs
    per_step = {name: [] for name in callbacks}
    per_epoch = {name: [] for name in callbacks}
    for number in range(options.rounds + 1):
        for name, model in models.items():
            kr.barrier(name="fit")
            long = fit(model, callbacks[name](), batch, steps, 1) / steps
            kr.barrier(name="fit")
            short = fit(model, callbacks[name](), batch, 1, epochs)
            if number:
                per_step[name].append(1e3 * long)
                per_epoch[name].append(1e3 * short)
    return [
        {
            "callbacks": name,
            "ms_per_step": round(statistics.median(per_step[name]), 2),
            "ms_per_epoch": round(statistics.median(per_epoch[name]), 1),
        }
        for name in callbacks
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=parse_count, default=20)
    parser.add_argument("--width", type=parse_count, default=16)
    parser.add_argument("--batch", type=parse_count, default=16)
    parser.add_argument("--steps", type=parse_count, default=500)
    parser.add_argument("--epochs", type=parse_count, default=20)
    parser.add_argument("--rounds", type=parse_count, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kr.init()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(kr.broadcast_object(folder))
        rows = measured(sets(folder), options)
        kr.barrier(name="measured")
    if kr.rank() != 0:
        return
    if options.json:
        for row in rows:
            print(json.dumps(row))
    else:
        print(tabulate(rows, headers="keys"))


if __name__ == "__main__":
    main()
