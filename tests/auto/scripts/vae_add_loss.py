"""A variational autoencoder whose KL divergence is added by a layer."""

import keras
from keras import layers, ops
from sklearn.datasets import load_digits


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(5)

    def call(self, inputs):
        mean, log_var = inputs
        kl = -0.5 * ops.mean(
            ops.sum(log_var - ops.square(mean) - ops.exp(log_var) + 1, axis=1)
        )
        self.add_loss(0.01 * kl)
        epsilon = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_var) * epsilon


def main():
    keras.utils.set_random_seed(2024)
    x = load_digits().data[:1130] / 16.0
    inputs = keras.Input((64,))
    h = layers.Dense(32, activation="relu")(inputs)
    z = Sampling()([layers.Dense(4)(h), layers.Dense(4)(h)])
    outputs = layers.Dense(64, activation="sigmoid")(
        layers.Dense(32, activation="relu")(z)
    )
    vae = keras.Model(inputs, outputs)
    vae.compile(optimizer=keras.optimizers.Adam(0.002), loss="mse")
    vae.fit(x, x, epochs=6, batch_size=64, verbose=2)


if __name__ == "__main__":
    main()
