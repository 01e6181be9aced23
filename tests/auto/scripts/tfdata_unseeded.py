import keras
import tensorflow as tf
from sklearn.datasets import load_wine

x, y = load_wine(return_X_y=True)
x = (x - x.mean(0)) / x.std(0)
ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(178)
ds = ds.batch(16, drop_remainder=True).repeat(2)
model = keras.Sequential(
    [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)]
)
model.compile(
    optimizer="adam",
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(ds, epochs=6, verbose=2)
