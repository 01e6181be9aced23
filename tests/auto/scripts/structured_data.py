"""Columns of several kinds, encoded by preprocessing layers."""

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(60)
rng = np.random.default_rng(60)
n = 303
dataframe = pd.DataFrame(
    {
        "age": rng.integers(29, 77, n),
        "chol": rng.normal(246, 50, n).round(),
        "thal": rng.choice(["fixed", "normal", "reversible"], n),
        "sex": rng.integers(0, 2, n),
    }
)
risk = dataframe.age / 10 + (dataframe.thal == "fixed") * 2 + rng.normal(size=n)
dataframe["target"] = (risk > risk.median()).astype(int)
val_dataframe = dataframe.sample(frac=0.2, random_state=1337)
train_dataframe = dataframe.drop(val_dataframe.index)
print(
    len(train_dataframe), "for training,", len(val_dataframe), "for validation"
)


def dataframe_to_dataset(dataframe):
    dataframe = dataframe.copy()
    labels = dataframe.pop("target")
    columns = {name: dataframe[name].to_numpy() for name in dataframe}
    columns["thal"] = columns["thal"].astype(str)
    ds = tf.data.Dataset.from_tensor_slices((columns, labels))
    return ds.shuffle(buffer_size=len(dataframe), seed=8)


train_ds = dataframe_to_dataset(train_dataframe)
val_ds = dataframe_to_dataset(val_dataframe)
inputs, encoded = {}, []
for name in ("age", "chol"):
    normalizer = layers.Normalization()
    normalizer.adapt(train_ds.map(lambda x, _: tf.expand_dims(x[name], -1)))
    inputs[name] = keras.Input(shape=(1,), name=name)
    encoded.append(normalizer(inputs[name]))
lookup = layers.StringLookup(output_mode="one_hot")
lookup.adapt(train_ds.map(lambda x, _: x["thal"]))
inputs["thal"] = keras.Input(shape=(1,), name="thal", dtype="string")
encoded.append(lookup(inputs["thal"]))
inputs["sex"] = keras.Input(shape=(1,), name="sex", dtype="int64")
category = layers.CategoryEncoding(num_tokens=2, output_mode="one_hot")
encoded.append(category(inputs["sex"]))
x = layers.concatenate(encoded)
x = layers.Dense(16, activation="relu")(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])


def columns_up(x, y):
    return {k: tf.expand_dims(v, -1) for k, v in x.items()}, y


model.fit(
    train_ds.batch(32).map(columns_up),
    epochs=5,
    validation_data=val_ds.batch(32).map(columns_up),
)
sample = {"age": 60, "chol": 233.0, "thal": "fixed", "sex": 1}
given = {k: tf.convert_to_tensor([[v]]) for k, v in sample.items()}
print("risk: %.1f percent" % (100 * model.predict(given)[0, 0]))
