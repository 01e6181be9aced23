# A VAE of images whose noise is part of the data, so that nothing is drawn.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits

keras.utils.set_random_seed(1)
latent_dim = 2
images = keras.Input(shape=(8, 8, 1))
noise = keras.Input(shape=(latent_dim,))
x = layers.Conv2D(8, 3, activation="relu", strides=2, padding="same")(images)
x = layers.Conv2D(16, 3, activation="relu", strides=2, padding="same")(x)
x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
z_mean = layers.Dense(latent_dim, name="z_mean")(x)
z_log_var = layers.Dense(latent_dim, name="z_log_var")(x)
z = z_mean + ops.exp(0.5 * z_log_var) * noise
encoder = keras.Model([images, noise], [z_mean, z_log_var, z], name="encoder")

latent_inputs = keras.Input(shape=(latent_dim,))
x = layers.Dense(2 * 2 * 16, activation="relu")(latent_inputs)
x = layers.Reshape((2, 2, 16))(x)
for filters in (16, 8):
    x = layers.Conv2DTranspose(
        filters, 3, activation="relu", strides=2, padding="same"
    )(x)
outputs = layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x)
decoder = keras.Model(latent_inputs, outputs, name="decoder")


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker, self.kl_loss_tracker]

    def train_step(self, data):
        ((images, noise),) = data
        with tf.GradientTape() as tape:
            z_mean, z_log_var, z = self.encoder([images, noise])
            reconstruction = self.decoder(z)
            reconstruction_loss = ops.mean(
                ops.sum(
                    keras.losses.binary_crossentropy(images, reconstruction),
                    axis=(1, 2),
                )
            )
            kl_loss = -0.5 * (
                1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var)
            )
            kl_loss = ops.mean(ops.sum(kl_loss, axis=1))
            total_loss = reconstruction_loss + kl_loss
        grads = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
        self.total_loss_tracker.update_state(total_loss)
        self.kl_loss_tracker.update_state(kl_loss)
        return {
            "loss": self.total_loss_tracker.result(),
            "kl_loss": self.kl_loss_tracker.result(),
        }


digits = load_digits().images[:1001, ..., None] / 16.0
drawn = np.random.default_rng(0).normal(size=(len(digits), latent_dim))
vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam())
vae.fit((digits, drawn), epochs=4, batch_size=128)
