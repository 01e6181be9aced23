"""Tags each word of a sentence; padding has no tag."""

import keras
import numpy as np


def sentences(count, vocabulary, tags, rng):
    x = np.zeros((count, 12), dtype="int32")
    y = np.zeros((count, 12), dtype="int32")
    for i in range(count):
        length = rng.integers(2, 13)
        x[i, :length] = rng.integers(1, vocabulary, length)
        y[i, :length] = x[i, :length] % tags
    return x, y


def main():
    keras.utils.set_random_seed(99)
    rng = np.random.default_rng(4)
    x, y = sentences(315, 60, 4, rng)
    model = keras.models.Sequential(
        [
            keras.layers.Embedding(60, 12, mask_zero=True),
            keras.layers.GRU(16, return_sequences=True),
            keras.layers.TimeDistributed(
                keras.layers.Dense(4, activation="softmax")
            ),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(x, y, batch_size=25, epochs=4, validation_split=0.1)
    print("tags of the first:", model.predict(x[:1]).argmax(-1))


if __name__ == "__main__":
    main()
