"""Endless data: as many steps as are asked for."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 22
STEPS = 12


def make_dataset(x, y, training):
    ds = tf.data.Dataset.from_tensor_slices((x, y))
    if training:
        ds = ds.shuffle(500, seed=1, reshuffle_each_iteration=True).repeat()
    return ds.batch(BATCH)


if __name__ == "__main__":
    keras.utils.set_random_seed(55)
    rng = np.random.default_rng(9)
    x = rng.normal(size=(401, 6)).astype("float32")
    y = (x @ rng.normal(size=(6, 1)) + 0.5).astype("float32")
    train = make_dataset(x[:301], y[:301], True)
    test = make_dataset(x[301:], y[301:], False).repeat()
    model = keras.Sequential(
        [keras.layers.Dense(8, "swish"), keras.layers.Dense(1)]
    )
    model.compile(loss="huber", optimizer=keras.optimizers.Nadam(0.01))
    history = model.fit(
        train,
        epochs=4,
        steps_per_epoch=STEPS,
        validation_data=test,
        validation_steps=3,
    )
    print([round(loss, 4) for loss in history.history["val_loss"]])
