"""Keras 2 with eager execution off: see test_without_eager.py.

As programs do that were written before TensorFlow 2.
"""

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring import errors
from keras_ring.keras.lanes import keras

BATCH, STEPS = 8, 4


def _model(optimizer, seed):
    initial = np.random.default_rng(seed)
    model = keras.Sequential(
        [
            keras.layers.Dense(5, activation="tanh", input_shape=(3,)),
            keras.layers.Dense(1),
        ]
    )
    model.set_weights(
        [initial.normal(size=weight.shape) for weight in model.get_weights()]
    )
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def _data():
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(kr.size() * BATCH * STEPS, 3)).astype("float32")
    return x, np.sum(x**2, axis=1, keepdims=True)


def _shard(array):
    """Returns the part of this rank of each batch of all ranks."""
    parts = array.reshape(STEPS, kr.size(), BATCH, -1)
    return parts[:, kr.rank()].reshape(STEPS * BATCH, -1)


class _Rates(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        rate = self.model.optimizer.learning_rate
        self.seen.append(float(keras.backend.get_value(rate)))


def _train(callbacks, epochs=2, **arguments):
    """Trains on ranks that begin apart."""
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.legacy.SGD(0.05, momentum=0.9)
    )
    model = _model(optimizer, seed=kr.rank())
    x, y = _data()
    history = model.fit(
        _shard(x),
        _shard(y),
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **arguments,
    )
    return model, history.history


def training():
    """One process on the whole batch, and the ranks on their shards."""
    x, y = _data()
    whole = _model(keras.optimizers.legacy.SGD(0.05, momentum=0.9), seed=0)
    with kr.allow_local_updates():
        of_one = whole.fit(
            x,
            y,
            batch_size=BATCH * kr.size(),
            epochs=2,
            shuffle=False,
            verbose=0,
            validation_data=(x, y),
        ).history
    model, history = _train(
        [
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
            keras.callbacks.TerminateOnNaN(),
        ],
        validation_data=(_shard(x), _shard(y)),
    )
    return {
        "one": ([w.tolist() for w in whole.get_weights()], of_one),
        "ranks": ([w.tolist() for w in model.get_weights()], history),
    }


def warm_up():
    rates = _Rates()
    _, history = _train(
        [
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=2),
            rates,
        ],
        epochs=3,
    )
    return {"seen": rates.seen, "logs": history["learning_rate"]}


def mistakes():
    """What is told: no broadcast, and other numbers of batches."""
    found = {}
    try:
        _train([])
    except (errors.ConsistencyError, tf.errors.OpError) as error:
        found["no broadcast"] = str(error)
    kr.barrier(name="after the first")
    start = kr.callbacks.BroadcastGlobalVariablesCallback()
    model, _ = _train([start], epochs=1)
    x, y = _data()
    try:
        model.fit(
            x,
            y,
            batch_size=BATCH * (1 + kr.rank()),
            verbose=0,
            callbacks=[start],
        )
    except ValueError as error:
        found["steps"] = str(error)
    return found


def all_of_it():
    tf.compat.v1.disable_eager_execution()
    kr.init()
    return {each.__name__: each() for each in (training, warm_up, mistakes)}
