"""What the cases train, and on what."""

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

STEPS, BATCH_SIZE = 30, 16
WIDTH, CLASSES, WORDS = 10, 4, 12


def make_data(num=STEPS * BATCH_SIZE):
    """Returns (x, y), the same in all processes."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(num, WIDTH)).astype(keras.config.floatx())
    y = np.argmax(x @ rng.normal(size=(WIDTH, CLASSES)), axis=1)
    return x, y.astype("int32")


def make_words(num=STEPS * BATCH_SIZE):
    """Returns (x, y); words come often, within a batch and between ranks."""
    x = np.random.default_rng(5).integers(0, WORDS, size=(num, 6))
    return x, (x.sum(axis=1) % CLASSES).astype("int32")


def make_weights(num=STEPS * BATCH_SIZE):
    """Returns a weight for each row of data."""
    rng = np.random.default_rng(4)
    return rng.uniform(0.2, 2.0, num).astype(keras.config.floatx())


def sparse_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classifier():
    return keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(8, activation="tanh", name="one"),
            keras.layers.Dense(CLASSES, dtype=_of_results(), name="two"),
        ],
        name="classifier",
    )


def _of_results():
    """Losses are not computed in half precision, whatever the policy."""
    return keras.config.floatx()


def reader():
    """Its first variable has gradients of rows."""
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(WORDS, 5),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )


def normalized():
    """In one process with the layer of Keras, which is what is compared to."""
    layer = (
        keras.layers.BatchNormalization
        if kr.size() == 1
        else kr.SyncBatchNormalization
    )
    return keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(8, use_bias=False),
            layer(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Dense(CLASSES),
        ]
    )


def partly_frozen():
    model = classifier()
    model.get_layer("one").trainable = False
    return model


def two_outputs():
    inputs = keras.Input((WIDTH,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    return keras.Model(
        inputs,
        {
            "classes": keras.layers.Dense(CLASSES, name="classes")(hidden),
            "number": keras.layers.Dense(1, name="number")(hidden),
        },
    )


def cloned():
    return keras.models.clone_model(classifier())


class Subclassed(keras.Model):
    """Has no weights before it sees data."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.one = keras.layers.Dense(8, activation="tanh")
        self.two = keras.layers.Dense(CLASSES)

    def call(self, inputs):
        return self.two(self.one(inputs))


class WithUnused(Subclassed):
    """Has a layer that the loss does not depend on."""

    def __init__(self):
        super().__init__()
        self.unused = keras.layers.Dense(3)

    def build(self, input_shape):
        for layer, width in ((self.one, WIDTH), (self.two, 8)):
            layer.build((None, width))
        self.unused.build((None, WIDTH))
        self.built = True


class OwnStep(Subclassed):
    """Has a `train_step` of its own, with a penalty on gradients' norms."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                outputs = self(x, training=True)
            slopes = inner.gradient(outputs, x)
            loss = self.compute_loss(x, y, outputs)
            loss += 0.1 * tf.reduce_mean(tf.square(slopes))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        return {"loss": loss}
