"""What the calls in `rank_keras2.py` train, and on what."""

import numpy as np
import tensorflow as tf

import keras_ring as kr

keras = tf.keras

STEPS, BATCH_SIZE = 30, 16


def make_data(num, seed=3):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 20, size=(num, 4))
    return words, rng.normal(size=(num, 3))


def make_model(sparse=True):
    """Its first variable has gradients of rows and indices, if `sparse`."""
    first = keras.layers.Embedding(20, 5) if sparse else Scaled()
    return keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            first,
            keras.layers.Flatten(),
            keras.layers.Dense(6, activation="tanh", name="one"),
            keras.layers.Dense(3, name="two"),
        ],
        name="model",
    )


class Scaled(keras.layers.Layer):
    """Makes numbers of words."""

    def call(self, inputs):
        return tf.cast(inputs, self.compute_dtype) / 20


def of_this_rank(array, passes):
    """This rank's part of each batch, which all ranks have a part of.

    On one rank, a batch is that of all the passes.
    """
    size = kr.size()
    if size == 1:
        return array, BATCH_SIZE * passes
    parts = array.reshape(-1, BATCH_SIZE, *array.shape[1:])
    mine = parts[:, kr.rank() :: size]
    return mine.reshape(-1, *array.shape[1:]), BATCH_SIZE // size


class Subclassed(keras.Model):
    """Has no weights before it sees data."""

    def __init__(self):
        super().__init__()
        self.inner = make_model()
        self.last = keras.layers.Dense(3)

    def call(self, inputs):
        return self.last(self.inner(inputs))


def make_numbers(num, seed=4):
    """Returns (x, y) of numbers, the same in all processes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, 4))
    return x, np.tanh(x @ rng.normal(size=(4, 3)))


def dense():
    """Four variables, each with a gradient, and none of them near 0."""
    settings = {"bias_initializer": "ones"}
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(6, activation="tanh", name="one", **settings),
            # Losses are not computed in half precision.
            keras.layers.Dense(
                3, dtype=keras.backend.floatx(), name="two", **settings
            ),
        ],
        name="dense",
    )


def partly_frozen():
    model = dense()
    model.get_layer("one").trainable = False
    return model


def cloned():
    return keras.models.clone_model(dense())


class WithUnused(keras.Model):
    """Has a layer that the loss does not depend on."""

    def __init__(self):
        super().__init__()
        self.used = dense()
        self.unused = keras.layers.Dense(3)
        self.unused.build((None, 4))

    def call(self, inputs):
        return self.used(inputs)


def two_outputs():
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh")(inputs)
    return keras.Model(
        inputs,
        [
            keras.layers.Dense(3, name="first")(hidden),
            keras.layers.Dense(3, name="second")(hidden),
        ],
    )


class OwnStep(keras.Model):
    """Has a `train_step` of its own, with a penalty on gradients' norms."""

    def __init__(self):
        super().__init__()
        self.inner = dense()

    def call(self, inputs):
        return self.inner(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                outputs = self(x, training=True)
            slopes = inner.gradient(outputs, x)
            loss = self.compiled_loss(y, outputs)
            loss += 0.1 * tf.reduce_mean(tf.square(slopes))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        return {"loss": loss}


class OwnScaledStep(OwnStep):
    """Scales the loss itself, as Keras 2 has loops do."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(y, self(x, training=True))
            scaled = self.optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        return {"loss": loss}
