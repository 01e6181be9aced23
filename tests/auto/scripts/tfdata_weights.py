"""Weights of classes and of samples, of `tf.data` and in `fit`."""

import keras
import numpy as np
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

keras.utils.set_random_seed(77)
rng = np.random.default_rng(77)
x = rng.normal(size=(470, 9))
y = np.digitize(x[:, 0] + 0.4 * x[:, 1], [-1.2, 1.6])
classes = np.unique(y)
found = compute_class_weight(class_weight="balanced", classes=classes, y=y)
class_weight = dict(zip(classes.tolist(), found.tolist()))
print("weights", class_weight)
sample_weight = np.ones(len(y))
sample_weight[y == 2] = 4.0
sample_weight[::17] = 0.0


def build(loss, labels_shape=3):
    inputs = keras.Input((9,))
    h = keras.layers.Dense(12, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(h))
    model.compile(
        "adam",
        loss=loss,
        metrics=["accuracy"],
        weighted_metrics=["accuracy"],
    )
    return model


sparse = build(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(470, seed=5)
validation = tf.data.Dataset.from_tensor_slices(
    (x[:100], y[:100], sample_weight[:100])
).batch(33)
sparse.fit(
    data.batch(41),
    epochs=3,
    class_weight=class_weight,
    validation_data=validation,
    verbose=2,
)
weighted = tf.data.Dataset.from_tensor_slices((x, y, sample_weight))
sparse.fit(weighted.shuffle(470, seed=6).batch(41), epochs=2, verbose=2)
one_hot = build(keras.losses.CategoricalCrossentropy(from_logits=True))
data = data.map(lambda a, b: (a, tf.one_hot(b, 3))).batch(41)
one_hot.fit(data, epochs=2, class_weight=class_weight, verbose=2)
summed = build(
    keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="sum"
    )
)
summed.fit(x, y, batch_size=41, epochs=1, class_weight=class_weight)
summed.fit(x, y, batch_size=41, epochs=1, sample_weight=sample_weight)
print(sparse.evaluate(weighted.batch(50), verbose=0))
