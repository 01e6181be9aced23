# Trials, each of which adds a line to the results.
import csv
import os

import keras
from sklearn.datasets import load_iris

x, y = load_iris(return_X_y=True)
x = (x - x.mean(0)) / x.std(0)
path = "results.csv"
if not os.path.exists(path):
    with open(path, "w", newline="") as f:
        csv.writer(f).writerow(["units", "loss", "accuracy"])
for units in (4, 8, 16):
    keras.utils.set_random_seed(units)
    model = keras.Sequential(
        [
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(x, y, epochs=4, batch_size=32, verbose=0)
    loss, accuracy = model.evaluate(x, y, verbose=0)
    with open(path, "a", newline="") as f:
        csv.writer(f).writerow([units, loss, accuracy])
print(open(path).read())
