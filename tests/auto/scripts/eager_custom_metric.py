import keras
import numpy as np
from keras import ops
from sklearn.datasets import load_wine

keras.utils.set_random_seed(12)


class CategoricalTruePositives(keras.metrics.Metric):
    def __init__(self, name="categorical_true_positives", **kwargs):
        super().__init__(name=name, **kwargs)
        self.true_positives = self.add_variable(
            shape=(), name="ctp", initializer="zeros"
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = ops.reshape(ops.argmax(y_pred, axis=1), (-1, 1))
        y_true = ops.reshape(y_true, (-1, 1))
        values = ops.cast(y_true, "int32") == ops.cast(y_pred, "int32")
        values = ops.cast(values, self.dtype)
        if sample_weight is not None:
            values = ops.multiply(values, ops.cast(sample_weight, self.dtype))
        self.true_positives.assign_add(ops.sum(values))

    def result(self):
        return self.true_positives + 0

    def reset_state(self):
        self.true_positives.assign(0.0)


class SmoothedCrossentropy(keras.losses.Loss):
    def __init__(self, smoothing=0.1, name="smoothed"):
        super().__init__(name=name)
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        y = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), 3)
        y = y * (1 - self.smoothing) + self.smoothing / 3
        return keras.losses.categorical_crossentropy(
            ops.cast(y, y_pred.dtype), y_pred
        )


x, y = load_wine(return_X_y=True)
x = (x - x.mean(0)) / x.std(0)
p = np.random.permutation(len(x))
x, y = x[p], y[p]
model = keras.Sequential(
    [keras.layers.Dense(12, "relu"), keras.layers.Dense(3, "softmax")]
)
model.compile(
    optimizer=keras.optimizers.Adam(0.01),
    loss=SmoothedCrossentropy(),
    metrics=[CategoricalTruePositives()],
    run_eagerly=True,
)
model.fit(x, y, batch_size=25, epochs=5, validation_split=0.2)
