"""What ranks do in test_observed_on_ranks."""

import time

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

DELAY = 0.02
WATCHED = (
    *("fit_steps", "samples", "epoch", "activity"),
    *("fit_ns", "data_wait_ns", "evaluate_ns", "checkpoint_ns"),
)


def _slowly(x, y):
    time.sleep(DELAY)
    return x, y


def _data(slow, batches=6):
    x = np.arange(batches * 4 * 3, dtype=np.float32).reshape(-1, 3) / 50
    return batched((x, x.sum(1)), 4, slow)


def batched(arrays, rows, slow):
    """Returns batches of two arrays, each of which may take a while."""
    data = tf.data.Dataset.from_tensor_slices(arrays).batch(rows)
    width = arrays[0].shape[1]
    if slow:
        data = data.map(
            lambda x, y: tf.numpy_function(
                _slowly, [x, y], [tf.float32, tf.float32]
            )
        ).map(
            lambda x, y: (
                tf.ensure_shape(x, [None, width]),
                tf.ensure_shape(y, [None]),
            )
        )
        # Else batches are prepared while others are trained on.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.inject_prefetch = False
        data = data.with_options(options)
    return data


def _model(**settings):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", **settings)
    return model


def _callbacks():
    return [kr.callbacks.BroadcastGlobalVariablesCallback(0)]


def fit(directory, path, settings):
    """Trains for two epochs; rank 1 has a slow input pipeline."""
    kr.init()
    if path:
        kr.start_timeline(path)
    model = _model(**settings)
    by_epoch = []
    looks = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: by_epoch.append(kr.metrics()["fit_ns"])
    )
    # As a program does it that has only `model.save`.
    saves = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, _: (
            kr.rank() == 1 and model.save(f"{directory}-{epoch}.keras")
        )
    )
    model.fit(
        _data(slow=kr.rank() == 1),
        epochs=2,
        validation_data=_data(slow=False, batches=2),
        callbacks=[
            *_callbacks(),
            looks,
            saves,
            # Keras has rank 0 write it, by `model.save`.
            keras.callbacks.ModelCheckpoint(f"{directory}.keras"),
        ],
        verbose=0,
    )
    kr.checkpoint.save(model, directory, 1)
    if path:
        kr.stop_timeline()
    metrics = kr.metrics()
    return {name: metrics[name] for name in WATCHED} | {"by_epoch": by_epoch}


def loop():
    """A loop of one's own takes batches eagerly."""
    kr.init()
    steps = 0
    for x, _ in _data(slow=True):
        kr.allreduce(tf.reduce_sum(x), name="sum")
        steps += 1
    metrics = kr.metrics()
    return steps, {name: metrics[name] for name in WATCHED}
