# What an observer has to see, and must not change.
import sys

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
x = np.random.normal(size=(50, 3)).astype("float32")
y = x.sum(axis=1)


class Predicts(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.predict(x[:2], verbose=0)


def train():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    history = model.fit(
        x,
        y,
        epochs=2,
        validation_split=0.2,
        callbacks=[
            Predicts(),
            keras.callbacks.CSVLogger("log.csv"),
            keras.callbacks.ModelCheckpoint("best.weights.h5", **SAVED),
        ],
        verbose=0,
    )
    print(history.history["loss"])
    return model.get_weights()


SAVED = {"save_weights_only": True, "save_best_only": True}
weights = train()
np.savez("weights.npz", *weights)
layer = keras.layers.Dense(1)
net = keras.Sequential([layer])
optimizer = keras.optimizers.Adam(0.1)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(x)[:, 0] - y) ** 2)
    optimizer.apply_gradients(
        zip(tape.gradient(loss, net.variables), net.variables)
    )
    return loss


for _ in range(3):
    print(float(step(tf.constant(x), tf.constant(y))))
unused = keras.Sequential([keras.layers.Dense(1)])
if "fail" in sys.argv:
    raise LookupError("as asked")
