import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow.keras import layers

BUFFER_SIZE, BATCH_SIZE, EPOCHS, noise_dim = 900, 64, 3, 10
train_images = load_digits().images[:900].reshape(-1, 8, 8, 1)
train_images = ((train_images - 8) / 8).astype("float32")
train_dataset = tf.data.Dataset.from_tensor_slices(train_images)
train_dataset = train_dataset.shuffle(BUFFER_SIZE).batch(BATCH_SIZE)


def make_generator_model():
    model = tf.keras.Sequential()
    model.add(layers.Dense(4 * 4 * 8, use_bias=False, input_shape=(noise_dim,)))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(layers.Reshape((4, 4, 8)))
    model.add(
        layers.Conv2DTranspose(
            1, 3, strides=2, padding="same", activation="tanh"
        )
    )
    return model


def make_discriminator_model():
    model = tf.keras.Sequential()
    model.add(layers.Conv2D(8, 3, padding="same", input_shape=[8, 8, 1]))
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.3))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


generator = make_generator_model()
discriminator = make_discriminator_model()
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = tf.keras.optimizers.Adam(1e-3)
discriminator_optimizer = tf.keras.optimizers.Adam(1e-3)
seed = tf.random.normal([4, noise_dim])


@tf.function
def train_step(images):
    noise = tf.random.normal([tf.shape(images)[0], noise_dim])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated = generator(noise, training=True)
        real_output = discriminator(images, training=True)
        fake_output = discriminator(generated, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
        disc_loss = cross_entropy(tf.ones_like(real_output), real_output)
        disc_loss += cross_entropy(tf.zeros_like(fake_output), fake_output)
    generator_optimizer.apply_gradients(
        zip(
            gen_tape.gradient(gen_loss, generator.trainable_variables),
            generator.trainable_variables,
        )
    )
    discriminator_optimizer.apply_gradients(
        zip(
            disc_tape.gradient(disc_loss, discriminator.trainable_variables),
            discriminator.trainable_variables,
        )
    )
    return gen_loss, disc_loss


os.makedirs("samples", exist_ok=True)
for epoch in range(EPOCHS):
    for image_batch in train_dataset:
        g, d = train_step(image_batch)
    print(f"epoch {epoch + 1}: generator {g:.3f} discriminator {d:.3f}")
    predictions = generator(seed, training=False)
    np.save(f"samples/epoch_{epoch + 1}.npy", predictions.numpy())
