import time

import keras
import numpy as np
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
for jit in (False, True):
    keras.utils.set_random_seed(71)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer="sgd",
        metrics=["accuracy"],
        steps_per_execution=4,
        jit_compile=jit,
    )
    start = time.time()
    h = model.fit(x[:1101], y[:1101], batch_size=50, epochs=3, verbose=0)
    took = time.time() - start
    print(f"jit_compile={jit}: {h.history['loss'][-1]:.6f}")
    print("took seconds:", took > 0)
