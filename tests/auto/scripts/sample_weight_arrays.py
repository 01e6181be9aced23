import keras
import numpy as np
from sklearn.datasets import load_digits

keras.utils.set_random_seed(13)
x, y = load_digits(return_X_y=True)
x = x / 16.0
sample_weight = np.ones(shape=(len(y),))
sample_weight[y == 5] = 2.0
sample_weight[y == 8] = 0.0
model = keras.Sequential(
    [keras.layers.Dense(20, "relu"), keras.layers.Dense(10, "softmax")]
)
model.compile(
    "adam",
    keras.losses.SparseCategoricalCrossentropy(),
    metrics=["accuracy"],
    weighted_metrics=[
        "accuracy",
        keras.metrics.SparseCategoricalCrossentropy(),
    ],
)
model.fit(
    x[:1100],
    y[:1100],
    sample_weight=sample_weight[:1100],
    validation_data=(x[1100:], y[1100:], sample_weight[1100:]),
    batch_size=64,
    epochs=3,
)
print(
    model.evaluate(
        x[1100:],
        y[1100:],
        sample_weight=sample_weight[1100:],
        return_dict=True,
        verbose=0,
    )
)
