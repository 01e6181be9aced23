import json
import os

import keras
import numpy as np
from sklearn.datasets import load_digits

keras.utils.set_random_seed(19)
x, y = load_digits(return_X_y=True)
x = x / 16.0
x_train, y_train = x[:1013], y[:1013]
x_val, y_val = x[1013:1300], y[1013:1300]


class SavePredictions(keras.callbacks.Callback):
    def __init__(self, samples, folder):
        super().__init__()
        self.samples = samples
        self.folder = folder

    def on_train_begin(self, logs=None):
        os.makedirs(self.folder, exist_ok=True)

    def on_epoch_end(self, epoch, logs=None):
        p = self.model.predict(self.samples, verbose=0)
        np.save(os.path.join(self.folder, f"epoch_{epoch:02d}.npy"), p)
        print(f" epoch {epoch}: mean confidence {p.max(axis=1).mean():.4f}")


class History(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


json_log = open("loss_log.json", mode="wt", buffering=1)
json_logging = keras.callbacks.LambdaCallback(
    on_epoch_end=lambda epoch, logs: json_log.write(
        json.dumps({"epoch": epoch, "loss": logs["loss"]}) + "\n"
    ),
    on_train_end=lambda logs: json_log.close(),
)
batches = History()
model = keras.Sequential(
    [
        keras.layers.Input((64,)),
        keras.layers.Dense(32, "relu"),
        keras.layers.Dense(10, "softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    x_train,
    y_train,
    epochs=4,
    batch_size=64,
    validation_data=(x_val, y_val),
    callbacks=[
        SavePredictions(x_val[:10], "predictions"),
        batches,
        json_logging,
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.ModelCheckpoint("ckpt/model_{epoch:02d}.keras"),
        keras.callbacks.BackupAndRestore("backup"),
    ],
    verbose=2,
)
print(len(batches.losses), "batches, last loss", batches.losses[-1])
np.savetxt("batch_losses.txt", batches.losses)
print(sorted(os.listdir("ckpt")))
