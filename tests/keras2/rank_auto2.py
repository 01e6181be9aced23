"""What is Keras 2's own in `test_auto_on_ranks.py`, for its ranks.

The rest are the calls of `rank_auto`.
"""

import numpy as np
import rank_apart
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.lanes import keras
from keras_ring.unchanged import batches
from tests.auto import rank_auto, rank_counted, rank_loops, rank_state
from tests.auto.rank_auto import compiled, data, dense, refused, trained

layers = keras.layers


def rmse(y, p):
    return tf.sqrt(tf.reduce_mean(tf.square(tf.cast(y, p.dtype) - p)))


def from_centre(y, p):
    """One value for each row, which depends on all."""
    centre = tf.reduce_mean(p, axis=0)
    return tf.reduce_mean(tf.abs(p - 0.5 * centre - y), axis=-1)


class BatchRoot(keras.metrics.Metric):
    """A mean over batches of what is no mean over rows."""

    def __init__(self, name="batch_root", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y, p, sample_weight=None):
        self.total.assign_add(tf.cast(rmse(y, p), self.total.dtype))
        self.count.assign_add(1.0)

    def result(self):
        return self.total / tf.maximum(self.count, 1.0)


def own_metrics(how="in a graph"):
    """Functions that return a scalar, and what looks across rows."""
    x, y = data(103)
    model = compiled(
        dense(),
        metrics=[rmse, from_centre, BatchRoot(), "mae"],
        run_eagerly=how == "eagerly",
    )
    valid = x[:31], y[:31]
    return trained(model, x, y, batch_size=12, validation_data=valid)


def known_part(y, p):
    """A mean over known targets, which are not as many on each rank."""
    known = tf.cast(y > -1.0, p.dtype)
    return tf.reduce_sum(known * tf.square(y - p)) / (
        tf.reduce_sum(known) + 1.0
    )


class Ratio(keras.losses.Loss):
    """One value for each row, divided by the largest of all."""

    def call(self, y, p):
        errors = tf.reduce_mean(tf.square(y - p), axis=-1)
        return errors / (tf.reduce_max(tf.abs(y)) + 1.0)


class Whole(keras.losses.Loss):
    """Reduces by itself, past what Keras does."""

    def __call__(self, y, p, sample_weight=None):
        errors = tf.reduce_mean(tf.square(y - p), axis=-1)
        if sample_weight is not None:
            errors = errors * tf.cast(sample_weight, errors.dtype)
        return tf.sqrt(tf.reduce_sum(errors))


OWN_LOSSES = {
    "known part": lambda: known_part,
    "root": lambda: rmse,
    "from centre": lambda: from_centre,
    "ratio": Ratio,
    "sums": lambda: Ratio(reduction="sum"),
    "whole": Whole,
    "similarity": lambda: keras.losses.CosineSimilarity(axis=0),
}


def own_loss(name, how="in a graph"):
    """Losses that are no means over rows; of the last ones not all have any."""
    x, y = data(31)
    model = compiled(
        dense(kernel_regularizer="l2"),
        OWN_LOSSES[name](),
        SGD(1e-2),
        run_eagerly=how == "eagerly",
    )
    weights = np.arange(31) / 50.0 if how == "weighted" else None
    return trained(
        model, x, y, batch_size=10, sample_weight=weights, shuffle=False
    )


def own_losses_and_masks():
    """Two outputs, of which one has masks, of rows that go on as they like."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, size=(31, 5))
    x[:, 2:] *= rng.random((31, 3)) > 0.5
    inputs = keras.Input((5,))
    hidden = layers.Embedding(9, 4, mask_zero=True)(inputs)
    states = layers.LSTM(4, return_sequences=True)(hidden)
    model = keras.Model(
        inputs,
        [
            layers.Dense(1, name="each")(states),
            layers.Dense(1, name="last")(layers.LSTM(3)(hidden)),
        ],
    )
    model.compile(
        SGD(1e-2),
        {"each": from_centre, "last": Ratio()},
        loss_weights={"each": 0.3, "last": 2.0},
    )
    targets = {
        "each": rng.normal(size=(31, 5, 1)),
        "last": rng.normal(size=(31, 1)),
    }
    return trained(model, x, targets, batch_size=10, shuffle=False)


MORE_CALLS = (rank_auto, rank_counted, rank_loops, rank_state)
COLUMNS = rank_auto.COLUMNS
SGD = keras.optimizers.SGD
before_each_call = rank_auto.before_each_call
OPTIMIZERS = {
    "legacy SGD": lambda: keras.optimizers.legacy.SGD(0.01, momentum=0.9),
    "legacy Adam": lambda: keras.optimizers.legacy.Adam(clipnorm=0.1),
    "AdamW": lambda: keras.optimizers.AdamW(use_ema=True, clipnorm=0.1),
    "loss scale": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.Adam()
    ),
    "legacy loss scale": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.legacy.Adam()
    ),
}


def optimizer(name):
    x, y = data()
    model = compiled(dense(), "mse", OPTIMIZERS[name]())
    return trained(model, x, y, batch_size=10)


def own_method(kind, method):
    """A class that changes gradients on their way to the update."""
    x, y = data(31)
    optimizer = rank_apart.class_of(kind, method)(0.1)
    return trained(compiled(dense(), "mse", optimizer), x, y, batch_size=10)


def sparse_gradients(name):
    """Words that several ranks have, each more than once."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, size=(31, 7))
    model = keras.Sequential(
        [
            keras.Input((7,)),
            layers.Embedding(9, 4),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model = compiled(model, "mse", OPTIMIZERS[name]())
    return trained(model, x, rng.normal(size=(31, 1)), batch_size=10)


def added_losses():
    """Of a part that has no rows, they are 0 / 0."""
    x, y = data(31)
    inputs = keras.Input((COLUMNS,))
    hidden = layers.Dense(4, activity_regularizer="l2")(inputs)
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    model.add_loss(0.1 * tf.reduce_mean(tf.square(hidden)))
    model.add_metric(tf.reduce_mean(hidden), name="hidden")
    return trained(compiled(model), x, y, batch_size=10)


def masked_rows():
    """Rows that are masked as a whole, and so some parts of batches are.

    No batch is: of 0 / 0, Keras 2 makes no number.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(1, 9, size=(31, 5))
    x *= rng.random((31, 5)) > 0.3
    x[:5] = x[16:20] = 0
    inputs = keras.Input((5,))
    hidden = layers.Embedding(9, 4, mask_zero=True)(inputs)
    normal = layers.BatchNormalization()(hidden)
    model = keras.Model(
        inputs,
        [
            layers.LSTM(3, return_sequences=True, name="a")(normal),
            layers.Dense(2, name="b")(normal),
        ],
    )
    model.compile(
        "adam",
        ["mse", keras.losses.MeanAbsoluteError(reduction="sum")],
        loss_weights=[1.0, 0.1],
        metrics=["mae"],
        weighted_metrics=["mse"],
    )
    targets = [rng.normal(size=(31, 5, 3)), rng.normal(size=(31, 5, 2))]
    return trained(
        model,
        x,
        targets,
        batch_size=10,
        shuffle=False,
        sample_weight=[rng.random((31, 5)), rng.random(31)],
    )


def images(kind):
    """In float32, of which the fused operation is.

    Of the last batch one of three ranks has no row.
    """
    rows = 32
    keras.backend.set_floatx("float32")
    rng = np.random.default_rng(0)
    x = rng.normal(1, 2, size=(rows, 3, 3, 2)).astype("float32")
    frozen = layers.BatchNormalization(trainable=False)
    model = keras.Sequential(
        [
            keras.Input((3, 3, 2)),
            layers.Conv2D(4, 2, use_bias=False),
            {
                "fused": layers.BatchNormalization,
                "plain": lambda: layers.BatchNormalization(fused=False),
                "without scale": lambda: layers.BatchNormalization(
                    scale=False, momentum=0.5
                ),
                "of version 1": tf.compat.v1.keras.layers.BatchNormalization,
            }[kind](),
            frozen,
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    assert model.layers[1].fused == (kind != "plain")
    model = compiled(model, "mse", SGD(0.01))
    y = rng.normal(size=(rows, 1)).astype("float32")
    return trained(model, x, y, batch_size=10)


class Branches(keras.Model):
    """Python's `if` of tensors, which AutoGraph converts."""

    def __init__(self):
        super().__init__()
        self.out = layers.Dense(1)

    def call(self, x):
        if tf.reduce_sum(x) > 1e9:
            x = -x
        return self.out(x)


def loss_with_branch(a, b):
    if tf.size(a) > 10**9:
        a = -a
    return tf.square(a - b)


def branches(how):
    x, y = data()
    model = compiled(
        Branches(),
        loss_with_branch,
        steps_per_execution=4 if how == "several steps" else 1,
        run_eagerly=how == "eagerly",
    )
    return trained(model, x, y, batch_size=10)


def generator():
    x, y = data()

    def batches():
        for _ in range(2):
            for begin in range(0, 100, 10):
                yield x[begin : begin + 10], y[begin : begin + 10]

    model = compiled(dense())
    found = trained(
        model, batches(), steps_per_epoch=10, validation_data=(x, y)
    )
    return {**found, "evaluated": model.evaluate(batches(), verbose=0)}


def list_of_callbacks():
    x, y = data(60)
    model = compiled(dense())
    seen = []
    noted = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(logs["loss"])
    )
    callbacks = keras.callbacks.CallbackList([noted], model=model)
    model.fit(x, y, batch_size=10, epochs=2, verbose=0, callbacks=callbacks)
    return {"weights": model.get_weights(), "seen": seen}


class Noted(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append({key: float(value) for key, value in logs.items()})


def results_of_batches():
    x, y = data(53)
    model = compiled(dense(), metrics=["mae"])
    noted = Noted()
    found = trained(model, x, y, batch_size=10, callbacks=[noted])
    return {**found, "seen": noted.seen}


class WithoutTape(keras.Model):
    """Whose gradients no tape has made count by rows."""

    def train_step(self, batch):
        x, y = batch
        loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        weights = self.trainable_weights
        gradients = tf.gradients(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"loss": loss}


def without_tape():
    x, y = data()
    model = dense()
    model = compiled(WithoutTape(model.inputs, model.outputs))
    return trained(model, x, y, batch_size=10)


def normalization_that(how):
    """Layers that go by the batch in a way of their own."""
    x, y = data(60)
    inputs = keras.Input((COLUMNS,))
    hidden = layers.Dense(4)(inputs)
    if how == "operation":
        hidden = hidden - tf.reduce_mean(hidden, 0)
    else:
        arguments = {"renorm": True} if how == "renorm" else {}
        if how == "virtual_batch_size":
            arguments[how] = 5
        normalization = tf.compat.v1.keras.layers.BatchNormalization
        hidden = normalization(**arguments)(hidden)
    model = compiled(keras.Model(inputs, layers.Dense(1)(hidden)))
    return refused(lambda: model.fit(x, y, batch_size=20, verbose=0))


def train_function():
    """A model that makes its own."""
    x, y = data(60)

    class Model(keras.Model):
        def make_train_function(self, force=False):
            self.train_function = lambda it: self.train_step(next(it))
            return self.train_function

    model = dense()
    model = compiled(Model(model.inputs, model.outputs))
    return refused(lambda: model.fit(x, y, batch_size=10, verbose=0))


def without_eager_execution():
    return {
        name: refused(getattr(tf.compat.v1, name))
        for name in ("disable_eager_execution", "disable_v2_behavior")
    }


def units_dropped():
    """Which units a rank drops in a step, of weights that stay equal."""
    x, y = np.ones((45, 16)), np.ones((45, 1))
    dropped = []

    class Seen(layers.Dropout):
        def call(self, inputs, training=None):
            outputs = super().call(inputs, training=training)
            tf.py_function(lambda t: dropped.append(t.numpy()), [outputs], [])
            return outputs

    model = keras.Sequential([keras.Input((16,)), Seen(0.5), layers.Dense(1)])
    compiled(model)
    found = []
    for _ in range(2):
        # Three batches, of which the last is not one that is compared: what is
        # before it may be of that.
        model.fit(x, y, batch_size=15, epochs=1, verbose=0)
        found.append(dropped[-1])
    return found, model.get_weights()


def batches_of_ranks():
    """`--batch per-rank`: how often each row is trained on in two epochs.

    Of seven batches, two ranks of three have one without rows in each epoch.
    """
    x = np.arange(28.0)[:, np.newaxis]
    # Not of the model: ranks keep different numbers.
    seen = tf.Variable(np.zeros(28))

    class Counts(layers.Layer):
        def call(self, inputs):
            rows = tf.cast(inputs, tf.int32)
            ones = tf.ones_like(rows[:, 0], tf.float64)
            seen.scatter_nd_add(rows, ones)
            return inputs / 28

    model = keras.Sequential([keras.Input((1,)), Counts(), layers.Dense(1)])
    compiled(model, "mse", SGD(0.1))
    seen.assign(np.zeros(28))
    batches._whole_batches, parts = (
        batches._batches_of_ranks,
        batches._whole_batches,
    )
    try:
        history = model.fit(x, x, batch_size=4, epochs=2, verbose=0)
    finally:
        batches._whole_batches = parts
    of_all = kr.allreduce(seen, op=kr.Sum, name="seen").numpy()
    steps = int(model.optimizer.iterations)
    return of_all, steps, history.params["steps"], model.layers[1].get_weights()
