import datetime

import tensorflow as tf
from sklearn.datasets import load_digits

tf.keras.utils.set_random_seed(29)
x, y = load_digits(return_X_y=True)
x = x / 16.0
model = tf.keras.models.Sequential(
    [
        tf.keras.layers.Input((64,)),
        tf.keras.layers.Dense(24, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer="adam",
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
log_dir = "logs/fit/" + datetime.datetime.now().strftime("%Y%m%d")
tensorboard_callback = tf.keras.callbacks.TensorBoard(
    log_dir=log_dir, histogram_freq=1
)
model.fit(
    x=x[:1100],
    y=y[:1100],
    epochs=3,
    validation_data=(x[1100:], y[1100:]),
    callbacks=[tensorboard_callback],
)
