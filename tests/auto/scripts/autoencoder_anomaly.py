import keras
import numpy as np
from sklearn.datasets import load_digits

keras.utils.set_random_seed(31)
x, y = load_digits(return_X_y=True)
x = x.astype("float32") / 16.0
normal, odd = x[y != 1][:743], x[y == 1]

encoding_dim = 12
input_img = keras.Input(shape=(64,))
encoded = keras.layers.Dense(encoding_dim, activation="relu")(input_img)
decoded = keras.layers.Dense(64, activation="sigmoid")(encoded)
autoencoder = keras.Model(input_img, decoded)
encoder = keras.Model(input_img, encoded)
encoded_input = keras.Input(shape=(encoding_dim,))
decoder = keras.Model(encoded_input, autoencoder.layers[-1](encoded_input))

autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
autoencoder.fit(
    normal,
    normal,
    epochs=6,
    batch_size=64,
    shuffle=True,
    validation_data=(odd, odd),
)
encoded_imgs = encoder.predict(odd)
decoded_imgs = decoder.predict(encoded_imgs)
error = np.mean(np.square(decoded_imgs - odd), axis=1)
threshold = np.mean(
    np.square(autoencoder.predict(normal, verbose=0) - normal), axis=1
)
threshold = threshold.mean() + threshold.std()
print("Reconstruction error threshold: ", threshold)
print("Anomalies:", int(np.sum(error > threshold)), "of", len(odd))
