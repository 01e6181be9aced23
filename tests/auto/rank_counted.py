"""What steps of a program's own give to metrics, on ranks.

Each function trains as a program of one process does, and returns what has to
be the same on ranks; or the text of what refuses it.
"""

import numpy as np
import tensorflow as tf

from keras_ring.keras.lanes import keras
from tests.auto import rank_auto
from tests.auto.rank_auto import COLUMNS, SGD, data, dense, refused, trained

before_each_call = rank_auto.before_each_call


class BatchRoot(keras.metrics.Metric):
    """A mean over batches of what is no mean over rows."""

    def __init__(self, name="batch_root"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y, p, sample_weight=None):
        root = tf.sqrt(tf.reduce_mean(tf.square(y - p)))
        self.total.assign_add(tf.cast(root, self.dtype))
        self.count.assign_add(1.0)

    def result(self):
        return self.total / tf.maximum(self.count, 1.0)


class Tracks(keras.Model):
    """A step that gives values to metrics, and returns their results."""

    def __init__(self, *given):
        super().__init__()
        self.given = given
        self.inner = dense()
        self.trackers = {name: self.made(name) for name in ("loss", *given)}
        self.seen = self.add_weight(
            shape=(), initializer="zeros", trainable=False, name="seen"
        )

    def made(self, name):
        kinds = {"sum_of_means": keras.metrics.Sum, "own_class": BatchRoot}
        return kinds.get(name, keras.metrics.Mean)(name=name)

    @property
    def metrics(self):
        return list(self.trackers.values())

    def call(self, x):
        return self.inner(x)

    def train_step(self, batch):
        x, y, *weights = batch
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            errors = tf.reduce_mean(tf.square(p - y), axis=-1)
            loss = tf.reduce_mean(errors)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.seen.assign_add(1.0)
        self.trackers["loss"].update_state(loss)
        values = {
            "weighted": lambda: (errors, *weights),
            "rows_told": lambda: (loss, tf.shape(x)[0]),
            "one_told": lambda: (loss, 1.0),
            "columns": lambda: (tf.reduce_mean(x * (p - y), axis=0),),
            "sum_of_means": lambda: (loss,),
            "kl": lambda: (
                tf.reduce_mean(tf.reduce_sum(tf.square(x), axis=1)),
            ),
            "rate": lambda: (tf.constant(0.5, loss.dtype),),
            "root": lambda: (tf.sqrt(loss),),
            "largest": lambda: (tf.reduce_max(errors),),
            "norm": lambda: (tf.linalg.global_norm(gradients),),
            "sometimes": lambda: (tf.cond(self.seen > 4, *root(loss)),),
            "own_class": lambda: (y, p),
        }
        for name in self.given:
            if name == "each_second":
                tf.cond(
                    tf.equal(self.seen % 2, 0),
                    lambda: self.trackers["each_second"].update_state(loss),
                    lambda: None,
                )
            else:
                self.trackers[name].update_state(*values[name]())
        return {name: each.result() for name, each in self.trackers.items()}


def root(loss):
    return lambda: tf.sqrt(loss), lambda: loss


def tracked(rows, *given):
    """Means that are given to metrics, of parts that are not even."""
    x, y = data(rows)
    model = Tracks(*given)
    model.compile(SGD(1e-2))
    weights = np.arange(rows) / 50.0
    return trained(model, x, y, batch_size=7, sample_weight=weights)


def tracked_single(*given):
    x, y = data(50)
    model = Tracks(*given)
    model.compile(SGD(1e-2))
    found = [
        model.train_on_batch(x[begin : begin + 11], y[begin : begin + 11])
        for begin in range(0, 50, 11)
    ]
    return {"found": found, "weights": model.get_weights()}


def tracked_that(*given):
    x, y = data(104)
    model = Tracks(*given)
    model.compile("adam")
    return refused(lambda: model.fit(x, y, batch_size=7, verbose=0))


class Adversaries(keras.Model):
    """Two networks, two optimizers, two losses; and noise."""

    def __init__(self):
        super().__init__()
        self.critic = dense()
        self.maker = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(COLUMNS)]
        )
        self.of_critic = keras.metrics.Mean(name="of_critic")
        self.of_maker = keras.metrics.Mean(name="of_maker")

    @property
    def metrics(self):
        return [self.of_critic, self.of_maker]

    def compile(self):
        super().compile()
        self.by_critic, self.by_maker = SGD(1e-2), SGD(1e-2)

    def train_step(self, rows):
        # In place of what is drawn: of each row.
        noise = rows[:, :3] ** 2
        with tf.GradientTape() as tape:
            real, made = self.critic(rows), self.critic(self.maker(noise))
            loss = tf.reduce_mean(made) - tf.reduce_mean(real)
        self.update(tape, loss, self.critic, self.by_critic)
        self.of_critic.update_state(loss)
        with tf.GradientTape() as tape:
            made = self.critic(self.maker(noise))
            loss = tf.reduce_mean(tf.math.softplus(-made))
        self.update(tape, loss, self.maker, self.by_maker)
        self.of_maker.update_state(loss)
        return {each.name: each.result() for each in self.metrics}

    def update(self, tape, loss, model, optimizer):
        weights = model.trainable_weights
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))


def adversaries(rows):
    x, _ = data(rows)
    model = Adversaries()
    model.compile()
    return trained(model, x, batch_size=7)
