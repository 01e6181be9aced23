"""Writes images into folders by class, and reads them from there."""

import os

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

keras.utils.set_random_seed(30)
digits = load_digits()
for i in range(201):
    folder = os.path.join("images", "odd" if digits.target[i] % 2 else "even")
    os.makedirs(folder, exist_ok=True)
    image = np.repeat(digits.images[i][..., None] * 15, 3, axis=-1)
    keras.utils.save_img(
        os.path.join(folder, f"{i:04d}.png"), image, scale=False
    )
train_ds, val_ds = keras.utils.image_dataset_from_directory(
    "images",
    validation_split=0.2,
    subset="both",
    seed=1337,
    image_size=(8, 8),
    batch_size=20,
)
model = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        layers.Rescaling(1.0 / 255),
        layers.Conv2D(8, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(1),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(name="acc")],
)
model.fit(train_ds, epochs=4, validation_data=val_ds)
