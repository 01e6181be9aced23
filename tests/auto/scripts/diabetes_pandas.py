import keras
import numpy as np
import pandas as pd
from keras import layers
from sklearn.datasets import load_diabetes

SEED = 42
keras.utils.set_random_seed(SEED)

df = load_diabetes(as_frame=True, scaled=False).frame
print(df.describe().T.head())
train = df.sample(frac=0.8, random_state=SEED)
test = df.drop(train.index)
y_train = train.pop("target")
y_test = test.pop("target")

normalizer = layers.Normalization(axis=-1)
normalizer.adapt(np.array(train))


def build_model():
    model = keras.Sequential(
        [
            normalizer,
            layers.Dense(32, activation="relu"),
            layers.Dense(16, activation="relu"),
            layers.Dense(1),
        ]
    )
    model.compile(
        loss="mean_absolute_error",
        optimizer=keras.optimizers.Adam(0.01),
        metrics=["mse", "mae"],
    )
    return model


model = build_model()
history = model.fit(
    train, y_train, validation_split=0.2, epochs=8, verbose=0, batch_size=32
)
hist = pd.DataFrame(history.history)
hist["epoch"] = history.epoch
print(hist.tail())
hist.to_csv("history.csv", index=False)

test_predictions = model.predict(test).flatten()
error = test_predictions - y_test
print("mean error %.3f" % error.mean())
submission = pd.DataFrame({"id": test.index, "target": test_predictions})
submission.to_csv("submission.csv", index=False)
print("wrote submission.csv with", len(submission), "rows")
