"""`kr.evaluate` and `kr.predict` on ranks, against one process."""

import keras
import numpy as np
import tensorflow as tf
from rank_training import make_data, start

import keras_ring as kr


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y, batch_size):
        super().__init__(workers=2)
        self.data = x, y
        self.batch_size = batch_size

    def __len__(self):
        return -(-len(self.data[0]) // self.batch_size)

    def __getitem__(self, index):
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return tuple(part[rows] for part in self.data)


def _make_model():
    x = keras.Input((10,))
    hidden = keras.layers.Dense(16, activation="relu")(x)
    model = keras.Model(
        x,
        {
            "classes": keras.layers.Dense(4, activation="softmax")(hidden),
            "size": keras.layers.Dense(1)(hidden),
        },
    )
    model.compile(
        kr.DistributedOptimizer("sgd"),
        {"classes": "sparse_categorical_crossentropy", "size": "mse"},
        metrics={
            "classes": ["accuracy"],
            "size": [keras.metrics.RootMeanSquaredError()],
        },
        weighted_metrics={"classes": ["accuracy"]},
    )
    return model


def _kinds(x, y):
    def dataset(batch_size):
        data = tf.data.Dataset.from_tensor_slices((x, y))
        return data.batch(batch_size)

    def targets(rows):
        return {name: part[rows] for name, part in y.items()}

    def generator():
        for begin in range(0, len(x), 16):
            rows = slice(begin, begin + 16)
            yield x[rows], targets(rows)

    class TwoTargets(Batches):
        def __getitem__(self, index):
            rows = slice(16 * index, 16 * (index + 1))
            return x[rows], targets(rows)

    few = slice(0, 9)
    return {
        "arrays": lambda: ((x, y), {"batch_size": 16}),
        "one batch": lambda: ((x[few], targets(few)), {}),
        "weights": lambda: (
            (x, y),
            {"sample_weight": np.linspace(0, 2, len(x)), "batch_size": 8},
        ),
        "steps": lambda: ((x, y), {"batch_size": 8, "steps": 3}),
        "dataset": lambda: ((dataset(16),), {}),
        "dataset of one batch": lambda: ((dataset(100),), {}),
        "dataset, unknown": lambda: (
            (dataset(7).filter(lambda x, y: True),),
            {},
        ),
        "dataset, one, unknown": lambda: (
            (dataset(100).filter(lambda x, y: True),),
            {},
        ),
        "endless dataset": lambda: ((dataset(16).repeat(),), {"steps": 7}),
        "PyDataset": lambda: ((TwoTargets(x, x, 16),), {}),
        "generator": lambda: ((generator(),), {"steps": 5}),
    }


def inference():
    """Returns what differs from one process, by kind of data."""
    start()
    model = _make_model()
    x, y = make_data(70)
    targets = {"classes": y, "size": x.sum(axis=1, keepdims=True)}
    different = {}
    for name, make in _kinds(x, targets).items():
        data, arguments = make()
        found = kr.evaluate(
            model, *data, return_dict=True, verbose=0, **arguments
        )
        data, arguments = make()
        expected = model.evaluate(
            *data, return_dict=True, verbose=0, **arguments
        )
        wrong = [
            (key, found[key], expected[key])
            for key in expected
            if not np.isclose(found[key], expected[key], rtol=1e-6)
        ]
        arguments.pop("sample_weight", None)
        data, _ = make()
        predicted = kr.predict(model, data[0], verbose=0, **arguments)
        data, _ = make()
        whole = model.predict(data[0], verbose=0, **arguments)
        if set(found) != set(expected) or set(whole) != set(predicted):
            wrong.append("names")
        wrong += [
            key
            for key in whole
            if not np.array_equal(whole[key], predicted[key])
        ]
        everywhere = kr.allgather_object(found)
        if everywhere[0] != everywhere[1]:
            wrong.append("ranks")
        different[name] = wrong
    listed = kr.evaluate(model, x, targets, verbose=0)
    errors = []
    for call in (
        lambda: kr.predict(model, x[: 5 + kr.rank()]),
        lambda: kr.evaluate(model, x[:0], y[:0]),
        lambda: kr.predict(
            model, tf.data.Dataset.from_tensor_slices(x).repeat().batch(2)
        ),
    ):
        try:
            call()
        except ValueError as error:
            errors.append(str(error))
    return different, listed, errors
