"""The class that most posts on large data give, with workers."""

import numpy as np
from tensorflow import keras


class DataGenerator(keras.utils.Sequence):
    "Generates data for Keras"

    def __init__(
        self, list_IDs, labels, batch_size=32, dim=(8,), n_classes=3,
        shuffle=True, **kwargs
    ):  # fmt: skip
        super().__init__(**kwargs)
        self.dim = dim
        self.batch_size = batch_size
        self.labels = labels
        self.list_IDs = list_IDs
        self.n_classes = n_classes
        self.shuffle = shuffle
        self.on_epoch_end()

    def __len__(self):
        "Denotes the number of batches per epoch"
        return int(np.floor(len(self.list_IDs) / self.batch_size))

    def __getitem__(self, index):
        "Generate one batch of data"
        indexes = self.indexes[
            index * self.batch_size : (index + 1) * self.batch_size
        ]
        return self.__data_generation([self.list_IDs[k] for k in indexes])

    def on_epoch_end(self):
        "Updates indexes after each epoch"
        self.indexes = np.arange(len(self.list_IDs))
        if self.shuffle:
            np.random.shuffle(self.indexes)

    def __data_generation(self, list_IDs_temp):
        X = np.empty((self.batch_size, *self.dim))
        y = np.empty((self.batch_size), dtype=int)
        for i, ID in enumerate(list_IDs_temp):
            X[i] = np.random.default_rng(int(ID[3:])).normal(
                self.labels[ID], size=self.dim
            )
            y[i] = self.labels[ID]
        return X, keras.utils.to_categorical(y, num_classes=self.n_classes)


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    params = {"dim": (8,), "batch_size": 22, "n_classes": 3, "shuffle": True}
    ids = [f"id-{i}" for i in range(340)]
    labels = {each: i % 3 for i, each in enumerate(ids)}
    partition = {"train": ids[:260], "validation": ids[260:]}
    training_generator = DataGenerator(
        partition["train"], labels, workers=3, max_queue_size=4, **params
    )
    validation_generator = DataGenerator(
        partition["validation"], labels, **params
    )
    model = keras.Sequential(
        [
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", loss="categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        training_generator, validation_data=validation_generator, epochs=4
    )
    processes = DataGenerator(
        partition["train"],
        labels,
        workers=2,
        use_multiprocessing=True,
        **params,
    )
    model.fit(processes, epochs=2)
    print(model.evaluate(validation_generator, verbose=0))
