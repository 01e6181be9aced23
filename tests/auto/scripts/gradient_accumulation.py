# Batches of 24 that count as batches of 72.
import keras
import numpy as np

keras.utils.set_random_seed(33)
rng = np.random.default_rng(2)
x = rng.normal(size=(505, 8))
w = rng.normal(size=(8, 2))
y = np.tanh(x @ w)

model = keras.Sequential(
    [
        keras.layers.Dense(16, activation="tanh"),
        keras.layers.Dense(2),
    ]
)
model.compile(
    loss="mse",
    optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=3),
    metrics=[keras.metrics.RootMeanSquaredError()],
)
model.fit(x, y, batch_size=24, epochs=5)
print("updates:", int(model.optimizer.iterations))
