"""A GAN by `train_on_batch`, as it was written before `train_step`."""

import numpy as np
from keras import Input, Model, Sequential, layers, optimizers, utils

utils.set_random_seed(3)
rng = np.random.RandomState(0)
real = rng.normal(2.0, 0.5, size=(200, 2))
latent, half = 4, 17
generator = Sequential(
    [
        Input((latent,)),
        layers.Dense(8, activation="relu"),
        layers.BatchNormalization(),
        layers.Dense(2),
    ]
)
discriminator = Sequential(
    [
        Input((2,)),
        layers.Dense(8, activation="tanh"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
discriminator.compile(
    optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"]
)
discriminator.trainable = False
z = Input((latent,))
gan = Model(z, discriminator(generator(z)))
gan.compile(optimizers.Adam(0.01), "binary_crossentropy")
for step in range(12):
    rows = rng.randint(0, len(real), half)
    noise = rng.normal(size=(half, latent))
    fake = generator.predict(noise, verbose=0)
    x = np.concatenate([real[rows], fake])
    y = np.concatenate([np.ones((half, 1)), np.zeros((half, 1))])
    d_loss, d_accuracy = discriminator.train_on_batch(x, y)
    noise = rng.normal(size=(2 * half, latent))
    g_loss = gan.train_on_batch(noise, np.ones((2 * half, 1)))
    if step % 4 == 3:
        test = discriminator.test_on_batch(real[:20], np.ones((20, 1)))
        print(step, d_loss, d_accuracy, g_loss, test)
generator.save_weights("generator.weights.h5")
print(discriminator.evaluate(real, np.ones((200, 1)), verbose=0))
