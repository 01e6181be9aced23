# Arguments of fit that are seldom used.
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(70)
x = tf.random.normal((130, 4))
y = tf.reduce_sum(x**2, axis=1, keepdims=True)
model = keras.Sequential(
    [keras.layers.Dense(12, "softplus"), keras.layers.Dense(1)]
)
model.compile(optimizer=keras.optimizers.Lion(0.01), loss="log_cosh")
first = model.fit(
    x[:100],
    y[:100],
    batch_size=9,
    epochs=4,
    validation_data=(x[100:], y[100:]),
    validation_freq=2,
    validation_batch_size=7,
    verbose=0,
)
print(first.epoch, len(first.history["val_loss"]))
second = model.fit(
    x, y, batch_size=9, steps_per_epoch=5, epochs=6, initial_epoch=4, verbose=0
)
print(second.epoch, second.params)
third = model.fit(x, y, batch_size=1000, epochs=3, verbose=0)
model.optimizer.learning_rate = 0.001
fourth = model.fit(
    np.asarray(x), np.asarray(y), batch_size=43, epochs=2, verbose=0
)
print(fourth.history["loss"] < first.history["loss"])
print(model.evaluate(x, y, batch_size=50, steps=2, verbose=0))
