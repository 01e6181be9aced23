"""Losses, metrics and results of a program's own, on ranks.

Each function trains as a program of one process does, and returns what has to
be the same on ranks; or the text of what refuses it.
"""

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.lanes import keras
from tests.auto import rank_auto
from tests.auto.rank_auto import (
    COLUMNS,
    SETTINGS,
    SGD,
    compiled,
    data,
    dense,
    layers,
    printed,
    refused,
    trained,
)

before_each_call = rank_auto.before_each_call
ops = getattr(keras, "ops", None)
# Of the last batch of 10, some ranks have no rows; of 12, unequal parts.
FEW, UNEVEN = 31, 103
MISSING = -100.0


def masked(y, p):
    """A mean over known targets."""
    known = ops.cast(y > MISSING + 1, p.dtype)
    total = ops.maximum(ops.sum(known), 1.0)
    return ops.sum(known * ops.square(y - p)) / total


def unlike(y, p):
    """Compares all rows with each other."""
    norm = ops.sqrt(ops.sum(y * y) * ops.sum(p * p)) + 1e-3
    return 1.0 - ops.sum(y * p) / norm + ops.max(ops.square(p)) / 10.0


def rmse(y, p):
    return ops.sqrt(ops.mean(ops.square(ops.cast(y, p.dtype) - p)))


def from_centre(y, p):
    """One value for each row, which depends on all."""
    return ops.mean(ops.abs(p - 0.5 * ops.mean(p, axis=0) - y), axis=-1)


def taken(y, p):
    """Takes rows in another order, and compares neighbours."""
    rows = ops.take(p, ops.argsort(ops.reshape(y, (-1,))), axis=0)
    apart = ops.mean(ops.square(rows[1:] - rows[:-1]))
    return apart + ops.mean(ops.square(y - p))


class Ratio(keras.losses.Loss):
    """One value for each row, divided by the largest of all."""

    def call(self, y, p):
        errors = ops.mean(ops.square(y - p), axis=-1)
        return errors / (ops.max(ops.abs(y)) + 1.0)


class Whole(keras.losses.Loss):
    """Reduces by itself, past what Keras does."""

    def __call__(self, y, p, sample_weight=None):
        errors = ops.mean(ops.square(y - p), axis=-1)
        if sample_weight is not None:
            errors = errors * ops.cast(sample_weight, errors.dtype)
        return ops.sqrt(ops.sum(errors))


class BatchRoot(keras.metrics.Metric):
    """A mean over batches of what is no mean over rows."""

    def __init__(self, name="batch_root"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y, p, sample_weight=None):
        self.total.assign_add(ops.cast(rmse(y, p), self.dtype))
        self.count.assign_add(1.0)

    def result(self):
        return self.total / ops.maximum(self.count, 1.0)


class Largest(keras.metrics.Metric):
    """What is no sum, and does not say so."""

    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.found = self.add_weight(name="found", initializer="zeros")

    def update_state(self, y, p=None, sample_weight=None):
        errors = ops.abs(y if p is None else ops.cast(y, p.dtype) - p)
        error = ops.cast(ops.max(errors), self.dtype)
        self.found.assign(ops.maximum(self.found, error))

    def result(self):
        # Not the variable, which later batches change.
        return self.found + 0.0


def later_missing(rows=FEW):
    """Data whose targets are complete at first."""
    x, y = data(rows)
    rng = np.random.default_rng(3)
    y[12:][rng.uniform(size=(rows - 12, 1)) < 0.6] = MISSING
    return x, y


# Those that are objects are of the type that numbers have when they are made.
OBJECTS = ("subclass", "sums", "whole", "dice")
LOSSES = {
    "masked": masked,
    "unlike": unlike,
    "from_centre": from_centre,
    "taken": taken,
    "subclass": Ratio,
    "sums": lambda: Ratio(reduction="sum"),
    "whole": Whole,
    "dice": keras.losses.Dice,
}


def loss(name, rows=UNEVEN, how="in a graph"):
    x, y = data(rows)
    if name == "masked":
        x, y = later_missing(rows)
    kind = LOSSES[name]() if name in OBJECTS else LOSSES[name]
    model = dense(kernel_regularizer="l2")
    compiled(
        model,
        kind,
        SGD(1e-2),
        run_eagerly=how == "eagerly",
        jit_compile=how == "xla" and kr.xla_built(),
        metrics=[rmse],
    )
    weights = np.arange(rows) / 50.0 if how == "weighted" else None
    return trained(
        model,
        x,
        y,
        batch_size=10,
        shuffle=name != "masked",
        sample_weight=weights,
    )


def several_outputs():
    x, y = data()
    rows = keras.Input((COLUMNS,))
    hidden = layers.Dense(4, "tanh")(rows)
    outputs = {
        "one": layers.Dense(1, name="one")(hidden),
        "two": layers.Dense(1, name="two")(hidden),
        "three": layers.Dense(1, name="three")(hidden),
    }
    model = compiled(
        keras.Model(rows, outputs),
        {"one": unlike, "two": Ratio(), "three": "mse"},
        loss_weights={"one": 1.0, "two": 2.0, "three": 0.5},
        metrics={"one": [rmse, "mae"], "three": from_centre},
        weighted_metrics={"two": [from_centre, "mae"]},
    )
    y = {"one": y, "two": 2 * y, "three": y - 1}
    weights = np.arange(len(x)) / 50.0
    return trained(
        model, x, y, batch_size=10, sample_weight=dict.fromkeys(y, weights)
    )


def masks():
    """Elements of a sequence that count for nothing."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, size=(50, 7))
    x[:, 3:] *= rng.random((50, 4)) > 0.5
    model = keras.Sequential(
        [
            keras.Input((7,)),
            layers.Embedding(9, 4, mask_zero=True),
            layers.LSTM(4, return_sequences=True),
            layers.Dense(1),
        ]
    )
    compiled(model, from_centre, metrics=[from_centre])
    return trained(model, x, rng.normal(size=(50, 7, 1)), batch_size=12)


def half_precision():
    """Outputs of 16 bits, of a loss that needs those of all rows."""
    keras.backend.set_floatx("float32")
    x, y = data()
    model = keras.Sequential(
        [
            keras.Input((COLUMNS,)),
            layers.Dense(8, activation="relu", dtype="mixed_float16"),
            layers.Dense(1, dtype="mixed_float16"),
        ]
    )
    # So that no step is left out: the gradient of a rank's rows is as many
    # times as large as there are ranks.
    optimizer = keras.optimizers.LossScaleOptimizer(
        SGD(1e-2), initial_scale=64.0
    )
    compiled(model, unlike, optimizer, metrics=[rmse])
    return trained(model, x, y, batch_size=10, shuffle=False)


def own_batches():
    """A batch for each rank, of which one process has as many times more."""
    ranks = kr.size()
    vars(SETTINGS).update(per_rank=ranks > 1)
    x, y = data()
    model = compiled(dense(), unlike, SGD(1e-2), metrics=[rmse])
    size = 10 if ranks > 1 else 10 * rank_auto.RANKS
    return trained(model, x, y, batch_size=size, shuffle=False)


def single_batches():
    x, y = data(50)
    model = compiled(dense(), unlike, SGD(1e-2), metrics=[rmse, Largest()])
    found = []
    for begin in range(0, 50, 11):
        rows = slice(begin, begin + 11)
        found.append(model.train_on_batch(x[rows], y[rows]))
    found.append(model.test_on_batch(x[:7], y[:7]))
    found.append(model.train_on_batch(x[:7], y[:7]))
    return {"found": found, "weights": model.get_weights()}


def metrics(rows):
    """Metrics of a program's own, in training, validation and evaluation."""
    x, y = data(rows)
    model = compiled(dense(), metrics=[rmse, "mae", BatchRoot(), Largest()])
    found = trained(model, x, y, batch_size=10, validation_split=0.3)
    found["evaluated"] = model.evaluate(x, y, batch_size=10, verbose=0)
    return found


def untried_metric():
    """One that only an evaluation has ever seen."""
    x, y = data()
    model = compiled(dense(), metrics=[Largest()])
    return {"evaluated": model.evaluate(x, y, batch_size=10, verbose=0)}


class Adds(keras.Model):
    """Adds numbers of its own to the results."""

    def __init__(self):
        super().__init__()
        self.inner = dense()
        self.largest = Largest()

    def call(self, x):
        return self.inner(x)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        self.largest.update_state(y, y_pred)
        found["spread"] = ops.std(y_pred) + ops.mean(x)
        found["biggest"] = self.largest.result()
        return found


def adding_results():
    x, y = data(FEW)
    model = compiled(Adds(), metrics=["mae", rmse])
    return trained(model, x, y, batch_size=10, validation_split=0.3)


class Returns(keras.Model):
    """A step that returns values, and no results of metrics."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.inner = dense()
        if how == "later":
            # Built by its first batch.
            self.inner = keras.Sequential(
                [layers.Dense(8, "relu"), layers.Dense(1)]
            )

    def call(self, x):
        return self.inner(x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            errors = tf.square(self(x, training=True) - y)
            loss = error = tf.reduce_mean(errors)
            if self.how == "later":
                # Of the rows whose first number is small, all at first.
                known = tf.cast(x[:, :1] < 10.0, errors.dtype)
                loss = tf.reduce_sum(known * errors) / tf.reduce_sum(known)
            loss += 1e-3 * tf.add_n(
                [tf.nn.l2_loss(each) for each in self.trainable_variables]
            )
        weights = self.trainable_variables
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        others = {
            "values": {"error": error, "total": tf.reduce_sum(errors)},
            "root": {"root": tf.sqrt(error)},
            "largest": {"largest": tf.reduce_max(errors)},
            "norm": {"norm": tf.linalg.global_norm(gradients)},
            "later": {},
        }
        rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        return {"loss": loss, "rate": rate, **others[self.how]}


def values():
    x, y = data(104)
    model = Returns("values")
    model.compile(keras.optimizers.Adam(0.05))
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, factor=0.1)
    return trained(model, x, y, batch_size=10, epochs=6, callbacks=[plateau])


def values_that(how):
    x, y = data(104)
    if how == "later":
        x[40::3, 0] = 11.0
    model = Returns(how)
    model.compile("adam")
    return refused(
        lambda: model.fit(x, y, batch_size=10, shuffle=False, verbose=0)
    )


class Sees(keras.callbacks.Callback):
    """Looks at each batch that is evaluated."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_test_batch_end(self, batch, logs=None):
        self.losses.append([batch, float(logs["loss"])])


def seen_batches():
    x, y = data()
    model, sees, of_fit = compiled(dense()), Sees(), Sees()
    found = trained(
        model, x, y, batch_size=10, validation_split=0.4, callbacks=[of_fit]
    )
    model.evaluate(x, y, batch_size=10, verbose=0, callbacks=[sees])
    return {**found, "seen": sees.losses, "of_fit": of_fit.losses}


class Pairs(keras.Model):
    """Takes batches of two stacks, whose first axis is no rows."""

    def __init__(self):
        super().__init__()
        self.inner = dense()

    def call(self, x):
        return self.inner(x)

    def train_step(self, batch):
        stacks = batch[0] if isinstance(batch, tuple) else batch
        with tf.GradientTape() as tape:
            apart = self(stacks[0]) - self(stacks[kr.size()])
            loss = tf.reduce_mean(tf.square(apart))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def stacks(how):
    x = np.random.default_rng(0).normal(size=(kr.size() + 1, 12, COLUMNS))
    batches = tf.data.Dataset.from_tensors(x).repeat(3)
    model = Pairs()
    model.compile("adam", run_eagerly=how == "eagerly")
    if how == "single":
        return refused(lambda: model.train_on_batch(x))
    return refused(lambda: model.fit(batches, verbose=0))


class Updates(keras.Model):
    """Updates a metric that is no sum in a step of its own."""

    def __init__(self):
        super().__init__()
        self.inner = dense()
        self.largest = Largest()

    def call(self, x):
        return self.inner(x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            errors = tf.square(self(x, training=True) - y)
            loss = tf.reduce_mean(errors)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.largest.update_state(errors)
        return {"loss": loss, "largest": self.largest.result()}


def metric_that_is_no_sum():
    x, y = data()
    model = Updates()
    model.compile("adam")
    return refused(lambda: model.fit(x, y, batch_size=10, verbose=0))


def said():
    x, y = data()
    model = compiled(dense(), unlike, metrics=[rmse])
    return printed(lambda: model.fit(x, y, batch_size=10, verbose=0))
