"""What ranks do in test_told_alike."""

import contextlib
import io

import keras
import numpy as np
from rank_observed import batched

import keras_ring as kr

STEPS = 4
ROWS, WIDTH = 32, 256


def fit(path):
    """Trains short epochs; rank 1 has a slow input pipeline.

    Returns the lines that `fit` has shown.
    """
    kr.init()
    kr.start_timeline(path)
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(WIDTH, activation="relu"),
            keras.layers.Dense(WIDTH, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x = np.random.rand(STEPS * ROWS, WIDTH).astype(np.float32)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        model.fit(
            batched((x, x.sum(1)), ROWS, kr.rank() == 1),
            epochs=20,
            callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback(0)],
        )
    kr.stop_timeline()
    kr.shutdown()
    return shown.getvalue().splitlines()
