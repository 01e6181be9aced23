"""What layers, losses, steps and metrics keep, on ranks.

Each function trains as a program of one process does, and returns what has to
be the same on ranks, with the state; or the text of what refuses it.
"""

import numpy as np
import tensorflow as tf

from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import keras
from keras_ring.unchanged import step_check
from tests.auto import rank_auto
from tests.auto.rank_auto import (
    COLUMNS,
    SETTINGS,
    SGD,
    compiled,
    data,
    layers,
    printed,
    refused,
    trained,
)

before_each_call = rank_auto.before_each_call


def kept(layer, shape, initializer="zeros", name="kept"):
    return layer.add_weight(
        shape=shape, initializer=initializer, trainable=False, name=name
    )


class Center(layers.Layer):
    """Takes the running mean of what it has seen away."""

    def build(self, shape):
        self.mean = kept(self, (shape[-1],))

    def call(self, inputs, training=False):
        if training:
            mean = tf.reduce_mean(inputs, axis=0)
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return inputs - self.mean


class Scale(layers.Layer):
    """Divides by the largest number that it has seen, as quantizers do."""

    def build(self, shape):
        self.most = kept(self, ())
        self.least = kept(self, ())

    def call(self, inputs, training=False):
        if training:
            self.most.assign(tf.maximum(self.most, tf.reduce_max(inputs)))
            self.least.assign(tf.minimum(self.least, tf.reduce_min(inputs)))
        return inputs / (self.most - self.least + 1.0)


class Counts(layers.Layer):
    """Counts batches and rows, in integers, and goes by both."""

    def build(self, shape):
        self.batches = self.add_weight(
            shape=(), initializer="zeros", trainable=False, dtype="int64"
        )
        self.rows = self.add_weight(
            shape=(), initializer="zeros", trainable=False, dtype="int32"
        )

    def call(self, inputs, training=False):
        if training:
            self.batches.assign_add(1)
            self.rows.assign_add(tf.shape(inputs)[0])
        rows = tf.cast(self.rows + 1, inputs.dtype)
        return (
            inputs
            * (1.0 + 1.0 / rows)
            / tf.cast(self.batches + 1, inputs.dtype)
        )


class Normed(layers.Layer):
    """Adds a loss that is divided by its own running mean."""

    def build(self, shape):
        self.mean = kept(self, (), "ones")

    def call(self, inputs, training=False):
        loss = tf.reduce_mean(tf.square(inputs))
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * loss)
        self.add_loss(loss / self.mean)
        return inputs


class Codebook(layers.Layer):
    """Replaces rows by codes, which follow what they stand for."""

    num_codes = 4

    def build(self, shape):
        shape = (self.num_codes, shape[-1])
        self.codes = kept(self, shape, "random_normal", "codes")
        self.counts = kept(self, shape[:1], "zeros", "counts")
        self.sums = kept(self, shape, "zeros", "sums")
        self.sums.assign(self.codes)

    def call(self, inputs, training=False):
        apart = tf.reduce_sum(
            tf.square(inputs[:, None] - self.codes[None]), axis=-1
        )
        one_of = tf.one_hot(
            tf.argmin(apart, axis=-1), self.num_codes, dtype=inputs.dtype
        )
        found = tf.matmul(one_of, self.codes)
        if training:
            counts = tf.reduce_sum(one_of, axis=0)
            sums = tf.matmul(tf.transpose(one_of), inputs)
            self.counts.assign(0.8 * self.counts + 0.2 * counts)
            self.sums.assign(0.8 * self.sums + 0.2 * sums)
            # A little more than what is counted, so that none is divided by 0.
            self.codes.assign(self.sums / (self.counts[:, None] + 1e-3))
        self.add_loss(
            tf.reduce_mean(tf.square(inputs - tf.stop_gradient(found)))
        )
        return inputs + tf.stop_gradient(found - inputs)


class Variance(layers.Layer):
    """Keeps what does not come together from parts."""

    def build(self, shape):
        self.variance = kept(self, (shape[-1],), name="variance")

    def call(self, inputs, training=False):
        if training:
            self.variance.assign(tf.math.reduce_variance(inputs, axis=0))
        return inputs


class Scattered(layers.Layer):
    """Changes a variable in another way than to assign it."""

    def build(self, shape):
        self.seen = kept(self, (3,))

    def call(self, inputs, training=False):
        if training:
            variable = backend.storage(self.seen)
            variable.scatter_nd_add([[1]], [tf.reduce_sum(inputs)])
        return inputs


class Tally(layers.Layer):
    """Counts batches twice, the same on all ranks.

    By what is no `assign`; and in a variable that no model knows of.
    """

    number = None

    def build(self, shape):
        self.counts = kept(self, (3,))
        Tally.number = tf.Variable(0.0, trainable=False)

    def call(self, inputs, training=False):
        if training:
            backend.storage(self.counts).scatter_nd_add([[1]], [1.0])
            Tally.number.assign_add(1.0)
        return inputs


class Branches(layers.Layer):
    """Keeps a mean, in a branch."""

    def build(self, shape):
        self.mean = kept(self, (shape[-1],))

    def call(self, inputs, training=False):
        if training:
            mean = tf.reduce_mean(inputs, axis=0)
            tf.cond(
                tf.reduce_max(inputs) > -1e9,
                lambda: self._keep(mean),
                lambda: 0,
            )
        return inputs - self.mean

    def _keep(self, mean):
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return 1


class Always(layers.Layer):
    """Keeps a mean of what it evaluates, too."""

    def build(self, shape):
        self.mean = kept(self, (shape[-1],))

    def call(self, inputs):
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(inputs, axis=0))
        return inputs


LAYERS = {
    "center": Center,
    "scale": Scale,
    "counts": Counts,
    "normed": Normed,
    "codebook": Codebook,
    "variance": Variance,
    "scattered": Scattered,
    "branches": Branches,
    "always": Always,
}


def model_of(kind):
    return keras.Sequential(
        [
            keras.Input((COLUMNS,)),
            layers.Dense(4, activation="tanh"),
            LAYERS[kind](name="keeps"),
            layers.Dense(1),
        ]
    )


def state_of(model):
    return [np.array(v, np.float64) for v in model.non_trainable_variables]


def layer(kind, rows=103, how="in a graph"):
    """Of 31 rows the last batch has one, so other ranks have none."""
    x, y = data(rows)
    at_once = 3 if how == "at once" else 1
    model = compiled(
        model_of(kind),
        run_eagerly=how == "eagerly",
        jit_compile=how == "xla",
        steps_per_execution=at_once,
    )
    found = trained(model, x, y, batch_size=10, validation_split=0.2)
    return {**found, "state": state_of(model)}


def not_built():
    """A model that its first batch builds, whose weights no seed gives."""
    x, y = data(44)
    model = keras.Sequential([layers.Dense(4), Center(), layers.Dense(1)])
    found = trained(compiled(model), x, y, batch_size=10)
    return {**found, "state": state_of(model)}


def single_batches():
    x, y = data(50)
    model = compiled(model_of("codebook"))
    found = [
        float(
            model.train_on_batch(x[begin : begin + 11], y[begin : begin + 11])
        )
        for begin in range(0, 50, 11)
    ]
    return {
        "losses": found,
        "weights": model.get_weights(),
        "state": state_of(model),
    }


class Follows(keras.Model):
    """A step that keeps means of its loss, and a model that follows."""

    def __init__(self):
        super().__init__()
        self.inner, self.follower = (
            keras.Sequential(
                [keras.Input((COLUMNS,)), layers.Dense(3), layers.Dense(1)]
            )
            for _ in range(2)
        )
        self.follower.trainable = False
        self.mean = self.add_weight(
            shape=(), initializer="zeros", trainable=False, name="mean"
        )
        self.number = tf.Variable(0.0, dtype="float64")

    def call(self, x):
        return self.inner(x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(self(x, training=True) - y))
            self.mean.assign(0.9 * self.mean + 0.1 * error)
            self.number.assign_add(1.0)
            weight = 1.0 + 1.0 / self.number
            follows = tf.reduce_mean(tf.square(self.follower(x) - y))
            loss = error / (self.mean + 1.0) * weight + 0.0 * follows
        weights = self.inner.trainable_variables
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        for mine, theirs in zip(
            self.follower.weights, self.inner.weights, strict=True
        ):
            mine.assign(0.9 * mine + 0.1 * theirs)
        return {"loss": loss, "mean": self.mean + 0.0}


def own_step():
    x, y = data(104)
    model = Follows()
    model.compile("adam")
    found = trained(model, x, y, batch_size=10)
    state = [*state_of(model), np.array(model.number)]
    return {**found, "state": state}


class ByItsMean(keras.losses.Loss):
    """A loss that divides by its own running mean."""

    def __init__(self):
        super().__init__()
        self.mean = tf.Variable(1.0, dtype="float64", trainable=False)

    def call(self, y, p):
        errors = tf.reduce_mean(tf.square(y - p), axis=-1)
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(errors))
        return errors / self.mean


def loss():
    x, y = data(103)
    model, of_loss = rank_auto.dense(), ByItsMean()
    compiled(model, of_loss, SGD(0.01))
    found = trained(model, x, y, batch_size=10)
    return {**found, "state": [np.array(of_loss.mean)]}


class Ends(keras.metrics.Metric):
    """Assigns a maximum, a minimum and a running mean of errors."""

    def __init__(self):
        super().__init__(name="ends")
        self.most, self.least, self.mean = (
            self.add_weight(name=name, initializer="zeros")
            for name in ("most", "least", "mean")
        )

    def update_state(self, y, p, sample_weight=None):
        errors = tf.cast(y, p.dtype) - p
        self.most.assign(tf.maximum(self.most, tf.reduce_max(errors)))
        self.least.assign(tf.minimum(self.least, tf.reduce_min(errors)))
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(errors))

    def result(self):
        return self.most + 10.0 * self.least + 100.0 * self.mean


def metric():
    x, y = data(103)
    model = compiled(model_of("center"), metrics=[Ends()])
    return trained(model, x, y, batch_size=10, validation_split=0.2)


def refusal(kind, **options):
    x, y = data(103)
    model = compiled(model_of(kind))
    return refused(lambda: model.fit(x, y, batch_size=10, verbose=0, **options))


def evaluated():
    return refusal("always", validation_split=0.5)


class RareCounts(layers.Layer):
    """Counts what comes late, and forgets some of it."""

    def build(self, shape):
        self.sum = kept(self, ())

    def call(self, inputs, training=False):
        if training:
            rare = tf.reduce_sum(tf.maximum(inputs[:, 0] - 90.0, 0.0))
            self.sum.assign(0.5 * self.sum + rare)
        return inputs / (1.0 + self.sum)


def rare():
    """Of the first batches nothing tells how much is left of a sum."""
    x, y = data(110)
    x[53::2, 0] += 100.0
    model = compiled(
        keras.Sequential(
            [keras.Input((COLUMNS,)), RareCounts(), layers.Dense(1)]
        ),
        "mse",
        SGD(1e-4),
    )
    return refused(
        lambda: model.fit(x, y, batch_size=10, shuffle=False, verbose=0)
    )


class LateRatio(layers.Layer):
    """Keeps a mean of its rows that are known, as all are at first."""

    def build(self, shape):
        self.mean = kept(self, ())

    def call(self, inputs, training=False):
        if training:
            known = tf.cast(inputs[:, 0] < 90.0, inputs.dtype)
            mean = tf.reduce_sum(known * inputs[:, 1]) / (
                tf.reduce_sum(known) + 1e-9
            )
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return inputs[:, 1:]


def later():
    x, y = data(103)
    x[30::3, 0] = 100.0
    model = compiled(
        keras.Sequential(
            [keras.Input((COLUMNS,)), LateRatio(), layers.Dense(1)]
        )
    )
    return refused(
        lambda: model.fit(x, y, batch_size=10, shuffle=False, verbose=0)
    )


def said():
    x, y = data(103)
    model = compiled(model_of("center"))
    return printed(lambda: model.fit(x, y, batch_size=10, verbose=0))


class Returned(Center):
    """Goes on with what it assigns, and not with the variable."""

    def call(self, inputs, training=False):
        if not training:
            return inputs - self.mean
        mean = 0.9 * self.mean + 0.1 * tf.reduce_mean(inputs, axis=0)
        self.mean.assign(mean)
        return inputs - mean


LAYERS["returned"] = Returned


def own_batches():
    """Of batches of its own no rank knows the whole."""
    vars(SETTINGS).update(per_rank=True)
    return refusal("center")


def same_state_again():
    """What a comparison of one step leaves of the state, and of metrics."""
    x, y = data(30)
    inner = model_of("codebook")
    model = keras.Sequential([keras.Input((COLUMNS,)), Tally(), *inner.layers])
    compiled(model, metrics=["mae"])
    model.fit(x, y, batch_size=10, epochs=1, verbose=0)
    variables = [*model.variables, *model.metrics_variables, Tally.number]
    before = [np.array(each) for each in variables]
    assert before[0][1] == before[-1] == 3
    batch = tf.constant(x), tf.constant(y)
    assert not step_check._check(model, batch)
    assert not step_check._find_state(model, batch)
    return before, [np.array(each) for each in variables]
