import keras
import numpy as np
from sklearn.datasets import load_diabetes

keras.utils.set_random_seed(64)
X, y = load_diabetes(return_X_y=True)
y = (y - y.mean()) / y.std()
X = X * 20


def batch_generator(X, y, batch_size, shuffle=True):
    indices = np.arange(len(X))
    while True:
        if shuffle:
            np.random.shuffle(indices)
        for start in range(0, len(X), batch_size):
            chosen = indices[start : start + batch_size]
            yield X[chosen], y[chosen]


model = keras.models.Sequential()
model.add(keras.layers.Dense(20, activation="elu", input_shape=(10,)))
model.add(keras.layers.Dense(1))
model.compile(loss="mse", optimizer=keras.optimizers.Adagrad(0.1))
bs = 30
model.fit(
    batch_generator(X[:353], y[:353], bs),
    steps_per_epoch=int(np.ceil(353 / bs)),
    validation_data=(X[353:], y[353:]),
    epochs=4,
)
print("mse", model.evaluate(X[353:], y[353:], verbose=0))
