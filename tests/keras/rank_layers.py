"""Metrics and layers of Keras that would be wrong on ranks."""

import keras
import numpy as np
from rank_training import digest, make_data, sparse_loss, start

import keras_ring as kr


class Extreme(keras.metrics.Metric):
    """The largest sum of a row of what the model says."""

    def __init__(self, aggregation="sum", name="largest"):
        super().__init__(name=name)
        self.largest = self.add_variable(
            (), "zeros", aggregation=aggregation, name="largest"
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = keras.ops.max(keras.ops.sum(keras.ops.abs(y_pred), axis=-1))
        self.largest.assign(keras.ops.maximum(self.largest, found))

    def result(self):
        return self.largest


class Count(keras.metrics.Metric):
    """The number of rows: a sum, and nobody said so."""

    def __init__(self, start=0, name="count"):
        super().__init__(name=name)
        self.start = start
        self.rows = self.add_variable((), "zeros", name="rows")

    def reset_state(self):
        self.rows.assign(self.start)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.rows.assign(self.rows + keras.ops.shape(y_pred)[0])

    def result(self):
        return self.rows


METRICS = {
    "maximum": lambda: Extreme(),
    "mean": lambda: Extreme("mean"),
    "first": lambda: Extreme("only_first_replica"),
    "sum": lambda: Count(),
    "start": lambda: Count(1),
}


def metric_state(name):
    """Trains with a metric; returns its result, or the error."""
    start()
    model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(4)])
    model.compile(
        kr.DistributedOptimizer("sgd"),
        sparse_loss(),
        metrics=[METRICS[name]()],
    )
    try:
        history = model.fit(
            *kr.data.shard(make_data(40)),
            batch_size=8,
            epochs=2,
            verbose=0,
            callbacks=[kr.callbacks.MetricAverageCallback()],
        )
    except ValueError as error:
        return str(error)
    (key,) = [key for key in history.history if key != "loss"]
    return [float(value) for value in history.history[key]]


def _convolution(normalization, seed):
    keras.utils.set_random_seed(seed)
    inside = keras.Sequential(
        [keras.layers.Dense(6), normalization()], name="inside"
    )
    model = keras.Sequential(
        [
            keras.Input((10,)),
            keras.layers.Dense(8),
            normalization(),
            inside,
            keras.layers.Dense(4),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
        sparse_loss(),
    )
    return model


def _trained(model):
    x, y = kr.data.shard(make_data(64))
    # Of other scale on each rank.
    model.fit(
        x * (1 + kr.rank()),
        y,
        batch_size=8,
        shuffle=False,
        verbose=0,
        callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()],
    )
    return [w.tolist() for w in model.get_weights()], digest(model.variables)


def normalization():
    """Trains with each way to ask for normalization by all ranks."""
    start()
    wanted = _trained(_convolution(kr.SyncBatchNormalization, 5))
    start()
    synchronized = _trained(
        _convolution(
            lambda: keras.layers.BatchNormalization(synchronized=True), 5
        )
    )
    start()
    model = _convolution(keras.layers.BatchNormalization, 5)
    before = [w.tolist() for w in model.get_weights()]
    alone = [np.array(w) for w in model.get_weights()]
    model.train_on_batch(*make_data(8))
    model.set_weights(alone)
    for variable in model.optimizer.variables[2:]:
        variable.assign(np.zeros(variable.shape))
    same = kr.SyncBatchNormalization.convert(model) is model
    kept = [w.tolist() for w in model.get_weights()] == before
    classes = [type(layer).__name__ for layer in model._flatten_layers()]
    converted = _trained(model)
    again = keras.Sequential.from_config(model.get_config())
    return {
        "wanted": wanted,
        "synchronized": synchronized,
        "converted": converted,
        "same": same and kept,
        "classes": classes.count("SyncBatchNormalization"),
        "saved": [
            type(layer).__name__ for layer in again._flatten_layers()
        ].count("SyncBatchNormalization"),
    }
