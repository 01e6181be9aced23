"""Trains a base on even digits, then a new head on odd ones, then all."""

import keras
from keras import layers
from sklearn.datasets import load_digits


def make_base():
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(8, 3)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(8, 3)(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    return keras.Model(inputs, x, name="base")


def main():
    keras.utils.set_random_seed(77)
    x, y = load_digits(return_X_y=True)
    x = x.reshape((-1, 8, 8, 1)) / 16
    even, odd = y % 2 == 0, y % 2 == 1
    base = make_base()
    first = keras.Sequential(
        [base, layers.Flatten(), layers.Dense(5, activation="softmax")]
    )
    first.compile(
        "adam", "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    first.fit(x[even][:411], y[even][:411] // 2, epochs=2, verbose=2)

    base.trainable = False
    inputs = keras.Input(shape=(8, 8, 1))
    h = base(inputs, training=False)
    h = layers.GlobalAveragePooling2D()(h)
    outputs = layers.Dense(5)(h)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    print("trainable:", len(model.trainable_weights))
    model.fit(x[odd][:411], y[odd][:411] // 2, epochs=2, verbose=2)

    base.trainable = True
    model.compile(
        optimizer=keras.optimizers.Adam(1e-5),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    print("trainable:", len(model.trainable_weights))
    model.fit(x[odd][:411], y[odd][:411] // 2, epochs=2, verbose=2)


main()
