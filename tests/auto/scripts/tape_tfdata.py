"""A training loop from scratch over a tf.data pipeline."""

import time

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

keras.utils.set_random_seed(36)
inputs = keras.Input(shape=(64,), name="digits")
x1 = keras.layers.Dense(32, activation="relu")(inputs)
x2 = keras.layers.Dense(32, activation="relu")(x1)
outputs = keras.layers.Dense(10, name="predictions")(x2)
model = keras.Model(inputs=inputs, outputs=outputs)

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
batch_size = 64
train_dataset = tf.data.Dataset.from_tensor_slices((x[:1290], y[:1290]))
train_dataset = train_dataset.shuffle(buffer_size=1290, seed=2)
train_dataset = train_dataset.batch(batch_size)
val_dataset = tf.data.Dataset.from_tensor_slices((x[1290:], y[1290:]))
val_dataset = val_dataset.batch(batch_size)

optimizer = keras.optimizers.Adam(learning_rate=1e-3)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_acc_metric = keras.metrics.SparseCategoricalAccuracy()
val_acc_metric = keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss_value = loss_fn(y, logits)
    grads = tape.gradient(loss_value, model.trainable_weights)
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    train_acc_metric.update_state(y, logits)
    return loss_value


@tf.function
def test_step(x, y):
    val_acc_metric.update_state(y, model(x, training=False))


for epoch in range(3):
    print(f"\nStart of epoch {epoch}")
    start_time = time.time()
    for step, (x_batch, y_batch) in enumerate(train_dataset):
        loss_value = train_step(x_batch, y_batch)
        if step % 10 == 0:
            print(f"Training loss at step {step}: {float(loss_value):.4f}")
    print(f"Training acc: {float(train_acc_metric.result()):.4f}")
    train_acc_metric.reset_state()
    for x_batch, y_batch in val_dataset:
        test_step(x_batch, y_batch)
    print(f"Validation acc: {float(val_acc_metric.result()):.4f}")
    val_acc_metric.reset_state()
model.save_weights("loop.weights.h5")
