"""Models that are trained in parts: a `train_step`, and nothing to call."""

import keras
import tensorflow as tf
from keras import layers, ops

import keras_ring as kr

LATENTS = 4


class Gan(keras.Model):
    """Two networks, each with an optimizer of its own."""

    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)
        self.trackers = [
            keras.metrics.Mean(name="d_loss"),
            keras.metrics.Mean(name="g_loss"),
        ]

    def compile(self, d_optimizer, g_optimizer, **settings):
        # There is an optimizer of Keras as well, which nobody uses.
        super().compile(**settings)
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self):
        return self.trackers

    def train_step(self, real):
        count = ops.shape(real)[0]
        latents = keras.random.normal(
            (count, LATENTS), seed=self.seed_generator
        )
        fake = self.generator(latents)
        both = ops.concatenate([fake, real], axis=0)
        labels = ops.concatenate(
            [ops.ones((count, 1)), ops.zeros((count, 1))], axis=0
        )
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)
        with tf.GradientTape() as tape:
            judged = self.discriminator(self.generator(latents))
            g_loss = self.loss_fn(ops.zeros((count, 1)), judged)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        for tracker, loss in zip(self.trackers, (d_loss, g_loss), strict=True):
            tracker.update_state(loss)
        return {tracker.name: tracker.result() for tracker in self.trackers}


def make_gan(lazy=False, **settings):
    def network(width, *more):
        begin = [] if lazy else [keras.Input((width,))]
        return keras.Sequential([*begin, layers.Dense(6), *more])

    model = Gan(
        network(8, layers.Dropout(0.2), layers.Dense(1)),
        network(LATENTS, layers.Dense(8)),
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        kr.DistributedOptimizer(keras.optimizers.SGD(1e-2, momentum=0.9)),
        **settings,
    )
    return model


class Sampling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


class Vae(keras.Model):
    """An encoder and a decoder, with the optimizer of `compile`."""

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_variance, sampled = self.encoder(data)
            loss = ops.mean(ops.square(data - self.decoder(sampled)))
            loss += -0.5 * ops.mean(
                1 + log_variance - ops.square(mean) - ops.exp(log_variance)
            )
        weights = self.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def make_vae():
    inputs = keras.Input((8,))
    hidden = layers.Dense(6)(inputs)
    mean, log_variance = layers.Dense(2)(hidden), layers.Dense(2)(hidden)
    sampled = Sampling()([mean, log_variance])
    model = Vae(
        keras.Model(inputs, [mean, log_variance, sampled]),
        keras.Sequential([keras.Input((2,)), layers.Dense(8)]),
    )
    model.compile(optimizer=kr.DistributedOptimizer(keras.optimizers.Adam()))
    return model
