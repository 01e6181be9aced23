"""Five folds, each with a checkpoint, a log, and the best weights."""

import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold

tf.keras.utils.set_random_seed(1337)
X, Y = load_diabetes(return_X_y=True)
Y = (Y - Y.mean()) / Y.std()
save_dir = "saved_models/"
os.makedirs(save_dir, exist_ok=True)
fold_var = 1
VALIDATION_LOSS, VALIDATION_MAE, histories = [], [], []
kf = KFold(n_splits=3, shuffle=True)


def get_model_name(k):
    return "model_" + str(k) + ".keras"


def create_model():
    model = tf.keras.models.Sequential()
    model.add(tf.keras.layers.Dense(16, activation="relu"))
    model.add(tf.keras.layers.Dense(1))
    return model


for train_index, val_index in kf.split(X, Y):
    model = create_model()
    model.compile(loss="mse", optimizer="rmsprop", metrics=["mae"])
    checkpoint = tf.keras.callbacks.ModelCheckpoint(
        save_dir + get_model_name(fold_var),
        monitor="val_loss",
        verbose=1,
        save_best_only=True,
        mode="min",
    )
    history = model.fit(
        X[train_index],
        Y[train_index],
        epochs=5,
        batch_size=25,
        verbose=0,
        callbacks=[
            checkpoint,
            tf.keras.callbacks.CSVLogger(f"fold{fold_var}.csv"),
            tf.keras.callbacks.ReduceLROnPlateau(patience=1),
        ],
        validation_data=(X[val_index], Y[val_index]),
    )
    histories.append(history.history["val_loss"])
    model.load_weights(f"saved_models/model_{fold_var}.keras")
    results = model.evaluate(X[val_index], Y[val_index], verbose=0)
    results = dict(zip(model.metrics_names, results))
    VALIDATION_LOSS.append(results["loss"])
    tf.keras.backend.clear_session()
    fold_var += 1
print(f"{np.mean(VALIDATION_LOSS):.5f} (+/- {np.std(VALIDATION_LOSS):.5f})")
plt.plot(np.mean(histories, axis=0))
plt.savefig("validation.png")
np.save("histories.npy", histories)
