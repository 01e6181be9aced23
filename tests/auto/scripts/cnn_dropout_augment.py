import keras
from keras import layers
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 8, 8, 1)[:900]
y = y[:900]

keras.utils.set_random_seed(21)
data_augmentation = keras.Sequential(
    [
        layers.RandomTranslation(0.1, 0.1),
        layers.RandomRotation(0.05),
    ]
)
inputs = keras.Input((8, 8, 1))
z = layers.Rescaling(1.0 / 16)(inputs)
z = data_augmentation(z)
z = layers.Conv2D(12, 3, activation="relu")(z)
z = layers.SpatialDropout2D(0.1)(z)
z = layers.Flatten()(z)
z = layers.Dropout(0.3)(z)
outputs = layers.Dense(10, activation="softmax")(z)
model = keras.Model(inputs, outputs)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=6, batch_size=48, validation_split=0.2, verbose=2)
model.save("digits.keras")
