# A loss of the whole batch, which is no mean over its samples.
import keras
import numpy as np
from keras import ops

keras.utils.set_random_seed(28)
rng = np.random.default_rng(5)
x = rng.normal(size=(330, 5))
y = x @ rng.normal(size=(5, 1)) + 0.1 * rng.normal(size=(330, 1))


def negative_correlation(y_true, y_pred):
    y_true = ops.cast(y_true, y_pred.dtype)
    a = y_true - ops.mean(y_true)
    b = y_pred - ops.mean(y_pred)
    return -ops.sum(a * b) / ops.sqrt(ops.sum(a * a) * ops.sum(b * b) + 1e-12)


model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.02), loss=negative_correlation)
model.fit(x, y, batch_size=32, epochs=4, verbose=2)
