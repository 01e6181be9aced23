"""What the cases train, and on what."""

import importlib
import os

import keras
import numpy as np

import keras_ring as kr
from keras_ring.keras.lanes import compat
from keras_ring.keras.model import seeds

BACKEND = keras.backend.backend()
# What some of the cases are programs of.
tf = importlib.import_module("tensorflow") if BACKEND == "tensorflow" else None

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


def make_tags(num=STEPS * BATCH_SIZE):
    """Returns (x, y): texts of different lengths, filled up with 0."""
    rng = np.random.default_rng(6)
    x = rng.integers(1, WORDS, size=(num, 6))
    # By rank, too: the means of ranks are of different numbers of words.
    x[np.arange(6) > rng.integers(0, 6, size=(num, 1))] = 0
    return x, (x % CLASSES).astype("int32")


def make_texts(num=STEPS * BATCH_SIZE):
    """Returns (x, y): texts, and which class of words they have."""
    words, y = make_words(num)
    texts = [" ".join(f"w{n}" for n in row) for row in words]
    return tf.constant(texts), y


def make_images(num=STEPS * BATCH_SIZE):
    """Returns (x, y): pictures of noise, with one mean for each class."""
    rng = np.random.default_rng(7)
    y = rng.integers(0, CLASSES, num)
    x = rng.normal(size=(num, 32, 32, 3)) * 20.0 + 50.0 * y[:, None, None, None]
    return x.astype(keras.config.floatx()), y.astype("int32")


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


def tagger():
    """Has a result for each word, and none for what is no word."""
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(WORDS, 5, mask_zero=True),
            keras.layers.Dense(CLASSES),
        ]
    )


def text_reader():
    """Has learned its words from all of the data."""
    words = keras.layers.TextVectorization(output_sequence_length=6)
    words.adapt(make_texts()[0])
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            words,
            keras.layers.Embedding(WORDS + 2, 5),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )


def transfer():
    """A network that is not trained, with a layer behind it that is."""
    base = keras.applications.EfficientNetB0(
        include_top=False, weights=None, input_shape=(32, 32, 3), pooling="avg"
    )
    base.trainable = False
    inputs = keras.Input((32, 32, 3))
    outputs = keras.layers.Dense(CLASSES)(base(inputs, training=False))
    return keras.Model(inputs, outputs)


class OfRanks(keras.layers.Layer):
    """What ranks do with a layer that draws random numbers, in one process.

    Each has its rows of a batch, and its seeds.
    """

    def __init__(self, make):
        super().__init__()
        self.parts = [make() for _ in range(num_ranks())]

    def call(self, inputs, training=None):
        count = len(self.parts)
        results = [
            part(
                keras.tree.map_structure(lambda x, r=r: x[r::count], inputs),
                training=training,
            )
            for r, part in enumerate(self.parts)
        ]
        width = results[0].shape[-1]
        # One row of each, and the next ones.
        return keras.ops.reshape(keras.ops.stack(results, axis=1), (-1, width))

    def fold(self):
        """Makes the seeds those of ranks that share the first."""
        first, *_ = (compat.seed_variables(part) for part in self.parts)
        for index, part in enumerate(self.parts):
            for of_first, seed in zip(
                first, compat.seed_variables(part), strict=True
            ):
                seed.assign(seeds.folded(of_first.value, index))


def num_ranks():
    """Returns the number of ranks with which one process is compared."""
    return int(os.environ["KERAS_RING_TEST_RANKS"])


def random_layer(make):
    return OfRanks(make) if kr.size() == 1 else make()


def share(model):
    """Returns callbacks that give ranks seeds of their own."""
    if kr.size() > 1:
        return [kr.callbacks.BroadcastGlobalVariablesCallback()]
    for layer in model._flatten_layers():
        if isinstance(layer, OfRanks):
            layer.fold()
    return []


def with_dropout():
    def dropout():
        return keras.layers.Dropout(0.4, seed=3)

    return keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(8, activation="tanh"),
            random_layer(dropout),
            keras.layers.Dense(CLASSES),
        ]
    )


class Sampling(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(5)

    def call(self, inputs, training=None):
        mean, log_variance = inputs
        noise = keras.random.normal(
            keras.ops.shape(mean), dtype=mean.dtype, seed=self.seed_generator
        )
        return mean + keras.ops.exp(0.5 * log_variance) * noise


class Vae(keras.Model):
    """An encoder, which draws, and a decoder, in a `train_step`."""

    def __init__(self):
        super().__init__()
        inputs = keras.Input((WIDTH,))
        hidden = keras.layers.Dense(6, activation="tanh")(inputs)
        of_draws = [keras.layers.Dense(2)(hidden) for _ in range(2)]
        sampled = random_layer(Sampling)(of_draws)
        self.encoder = keras.Model(inputs, [*of_draws, sampled])
        self.decoder = keras.Sequential(
            [keras.Input((2,)), keras.layers.Dense(WIDTH)]
        )

    def train_step(self, data):
        x, _ = data
        ops = keras.ops
        with tf.GradientTape() as tape:
            mean, log_variance, sampled = self.encoder(x, training=True)
            loss = ops.mean(ops.square(x - self.decoder(sampled)))
            loss += -0.5 * ops.mean(
                1 + log_variance - ops.square(mean) - ops.exp(log_variance)
            )
        weights = self.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class Gan(keras.Model):
    """Two networks, each with an optimizer of its own, in a `train_step`."""

    def __init__(self, make_optimizer):
        super().__init__()
        self.generator = classifier()
        self.judge = keras.Sequential(
            [
                keras.Input((CLASSES,)),
                keras.layers.Dense(6, activation="tanh"),
                keras.layers.Dense(1),
            ]
        )
        self.of_generator = make_optimizer()
        self.of_judge = make_optimizer()

    def train_step(self, data):
        noise, _ = data
        real = noise[:, :CLASSES] + 1.0
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        ones = keras.ops.ones_like(noise[:, :1])
        with tf.GradientTape() as tape:
            value = loss(ones, self.judge(real))
            value += loss(0.0 * ones, self.judge(self.generator(noise)))
        weights = self.judge.trainable_weights
        self.of_judge.apply(tape.gradient(value, weights), weights)
        with tf.GradientTape() as tape:
            value = loss(ones, self.judge(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.of_generator.apply(tape.gradient(value, weights), weights)
        return {"loss": value}


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
