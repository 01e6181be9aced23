import keras
import numpy as np
from sklearn.datasets import load_breast_cancer


class TumourNet(keras.Model):
    def __init__(self, units=16, **kwargs):
        super().__init__(**kwargs)
        self.dense1 = keras.layers.Dense(units, activation="gelu")
        self.dense2 = keras.layers.Dense(units, activation="gelu")
        self.skip = keras.layers.Dense(units)
        self.out = keras.layers.Dense(1, activation="sigmoid")

    def call(self, inputs):
        x = self.dense1(inputs)
        x = self.dense2(x) + self.skip(inputs)
        return self.out(x)


keras.utils.set_random_seed(1337)
x, y = load_breast_cancer(return_X_y=True)
x = (x - x.mean(0)) / x.std(0)
y = y.reshape(-1, 1).astype("float32")
idx = np.random.RandomState(3).permutation(len(x))
x, y = x[idx], y[idx]
n = 455
model = TumourNet()
model.compile(
    optimizer="adam",
    loss="binary_crossentropy",
    metrics=[
        "accuracy",
        keras.metrics.AUC(name="auc"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.Recall(name="recall"),
        keras.metrics.F1Score(threshold=0.5, name="f1"),
    ],
)
checkpoint = keras.callbacks.ModelCheckpoint(
    "best.weights.h5",
    monitor="val_auc",
    mode="max",
    save_best_only=True,
    save_weights_only=True,
    verbose=1,
)
model.fit(
    x[:n],
    y[:n],
    batch_size=32,
    epochs=5,
    validation_data=(x[n:], y[n:]),
    callbacks=[checkpoint],
)
model.load_weights("best.weights.h5")
results = model.evaluate(x[n:], y[n:], return_dict=True, verbose=0)
for name, value in results.items():
    print(f"{name}: {np.mean(value):.4f}")
