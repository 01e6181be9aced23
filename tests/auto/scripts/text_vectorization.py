import random

import keras
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
good = ["great", "lovely", "superb", "fun", "brilliant"]
bad = ["awful", "dull", "poor", "boring", "weak"]
filler = "the film was and with a plot by an actor of this year".split()
random.seed(3)
texts, labels = [], []
for i in range(330):
    label = i % 2
    words = random.choices(filler, k=random.randint(4, 12))
    words += random.choices(good if label else bad, k=2)
    random.shuffle(words)
    texts.append(" ".join(words).capitalize() + ".")
    labels.append(label)

raw_train_ds = tf.data.Dataset.from_tensor_slices(
    (texts[:250], labels[:250])
).batch(32)
raw_val_ds = tf.data.Dataset.from_tensor_slices(
    (texts[250:], labels[250:])
).batch(32)

vectorize_layer = layers.TextVectorization(
    max_tokens=100, output_mode="int", output_sequence_length=14
)
vectorize_layer.adapt(raw_train_ds.map(lambda text, label: text))


def vectorize_text(text, label):
    text = tf.expand_dims(text, -1)
    return vectorize_layer(text), label


train_ds = raw_train_ds.map(vectorize_text).cache().prefetch(tf.data.AUTOTUNE)
val_ds = raw_val_ds.map(vectorize_text).cache().prefetch(tf.data.AUTOTUNE)

model = keras.Sequential(
    [
        layers.Embedding(100, 8),
        layers.Conv1D(8, 3, padding="valid", activation="relu", strides=2),
        layers.GlobalMaxPooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"]
)
model.fit(train_ds, validation_data=val_ds, epochs=5)

end_to_end = keras.Sequential(
    [keras.Input(shape=(1,), dtype="string"), vectorize_layer, model]
)
end_to_end.compile(loss="binary_crossentropy", metrics=["accuracy"])
samples = tf.constant([["A superb film"], ["This plot was dull"]])
print(end_to_end.predict(samples))
print(vectorize_layer.get_vocabulary()[:8])
