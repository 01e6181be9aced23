import math

import keras
import numpy as np
from sklearn.datasets import load_digits


class DigitsSequence(keras.utils.PyDataset):
    def __init__(self, x_set, y_set, batch_size, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x_set, y_set
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)
        self.order = np.arange(len(self.x))

    def __len__(self):
        return math.ceil(len(self.x) / self.batch_size)

    def __getitem__(self, idx):
        low = idx * self.batch_size
        high = min(low + self.batch_size, len(self.x))
        rows = self.order[low:high]
        return self.x[rows] / 16.0, self.y[rows]

    def on_epoch_end(self):
        self.rng.shuffle(self.order)


keras.utils.set_random_seed(3)
x, y = load_digits(return_X_y=True)
train = DigitsSequence(x[:1307], y[:1307], 50, workers=2, max_queue_size=4)
val = DigitsSequence(x[1307:], y[1307:], 50)

model = keras.Sequential(
    [
        keras.layers.Dense(40, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer="adam",
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(train, epochs=4, validation_data=val, shuffle=False)
print(model.evaluate(val))
print(model.predict(val).shape)
