# Sentiment of sequences of different lengths, padded.
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(2)
max_features = 150
maxlen = 20

rng = np.random.default_rng(0)
sequences, labels = [], []
for _ in range(437):
    length = rng.integers(3, 26)
    words = rng.integers(1, max_features, size=length)
    sequences.append(words.tolist())
    labels.append(int((words < 75).mean() > 0.5))
x = keras.utils.pad_sequences(sequences, maxlen=maxlen)
y = np.array(labels)
print(len(x), "sequences")

inputs = keras.Input(shape=(None,), dtype="int32")
e = layers.Embedding(max_features, 16, mask_zero=True)(inputs)
h = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(e)
h = layers.Bidirectional(layers.LSTM(8))(h)
outputs = layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(
    x[:350],
    y[:350],
    batch_size=32,
    epochs=4,
    validation_data=(x[350:], y[350:]),
)
