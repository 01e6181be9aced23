"""Trainings in which rank 1 goes another way: see test_desync.py."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

BATCH = 8


def _model(extra=False):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4, name="first")]
    if extra:
        layers.append(keras.layers.Dense(4, name="extra"))
    model = keras.Sequential([*layers, keras.layers.Dense(1, name="last")])
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.01)),
        loss="mse",
        metrics=["mae"],
    )
    return model


def _data(batches):
    x = np.ones((BATCH * batches, 3), "float32")
    return {"x": x, "y": x[:, :1], "batch_size": BATCH, "verbose": 0}


def _fit(model, batches, *callbacks):
    averages = kr.callbacks.MetricAverageCallback()
    model.fit(**_data(batches), callbacks=[averages, *callbacks])


def _steps(is_odd):
    _fit(_model(), 4 if is_odd else 8)


def _models(is_odd):
    _fit(_model(extra=is_odd), 4)


def _sets(is_odd):
    """As of a model with more variables, in a loop without any of ours."""
    names = ["first", "extra", "last"] if is_odd else ["first", "last"]

    @tf.function
    def step():
        return [
            kr.allreduce(tf.ones([4]), name=f"sets/{name}") for name in names
        ]

    for _ in range(4):
        step()


def _evaluation(is_odd):
    model = _model()
    _fit(model, 2)
    if is_odd:
        averages = kr.callbacks.MetricAverageCallback()
        model.evaluate(**_data(2), callbacks=[averages])
    else:
        _fit(model, 2)


def _evaluation_that_ends(is_odd):
    """Of the rank alone, with nothing that others have to do with."""

    class EvaluatesOnOneRank(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if is_odd and batch == 1:
                self.model.evaluate(**_data(2))
                time.sleep(2.5)

    # `MetricAverageCallback` would have all evaluate together.
    _model().fit(**_data(4), callbacks=[EvaluatesOnOneRank()])


def _eager_evaluation(is_odd):
    for step in range(4):
        kr.allreduce(tf.ones([4]), name="eager/gradient")
        if is_odd and step == 2:
            kr.allreduce(tf.ones([]), name="eager/accuracy")


def trainings():
    """Runs each; returns the errors, and marks where it ends in the log."""
    kr.init()
    errors = {}
    for train in (
        _steps,
        _models,
        _sets,
        _evaluation,
        _evaluation_that_ends,
        _eager_evaluation,
    ):
        name = train.__name__[1:]
        errors[name] = ""
        try:
            train(kr.rank() == 1)
        except (tf.errors.OpError, kr.errors.ConsistencyError) as error:
            errors[name] = f"{type(error).__name__}: {error}"
        kr.barrier(name=f"after {name}")
        print(f"end of {name}", file=sys.stderr, flush=True)
    return errors
