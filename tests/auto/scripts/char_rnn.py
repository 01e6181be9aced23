"""Characters by a GRU whose states are handed on, as the present tutorial."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(3)
text = "".join(np.random.choice(list("abcd ef\n"), 4000))
vocab = sorted(set(text))
ids_from_chars = tf.keras.layers.StringLookup(vocabulary=vocab)
chars_from_ids = tf.keras.layers.StringLookup(
    vocabulary=ids_from_chars.get_vocabulary(), invert=True
)
all_ids = ids_from_chars(tf.strings.unicode_split(text, "UTF-8"))
ids_dataset = tf.data.Dataset.from_tensor_slices(all_ids)
sequences = ids_dataset.batch(21, drop_remainder=True)
dataset = (
    sequences.map(lambda sequence: (sequence[:-1], sequence[1:]))
    .shuffle(500)
    .batch(25)
    .prefetch(tf.data.experimental.AUTOTUNE)
)


class MyModel(tf.keras.Model):
    def __init__(self, vocab_size, embedding_dim, rnn_units):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(vocab_size, embedding_dim)
        self.gru = tf.keras.layers.GRU(
            rnn_units, return_sequences=True, return_state=True
        )
        self.dense = tf.keras.layers.Dense(vocab_size)

    def call(self, inputs, states=None, return_state=False, training=False):
        x = self.embedding(inputs, training=training)
        if states is None:
            states = self.gru.get_initial_state(tf.shape(inputs)[0])
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x, training=training)
        if return_state:
            return x, states
        return x


class CustomTraining(MyModel):
    @tf.function
    def train_step(self, inputs):
        inputs, labels = inputs
        with tf.GradientTape() as tape:
            predictions = self(inputs, training=True)
            loss = self.loss(labels, predictions)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


vocab_size = len(ids_from_chars.get_vocabulary())
loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
model = MyModel(vocab_size, 8, 16)
model.compile(optimizer="adam", loss=loss)
history = model.fit(dataset, epochs=2)

custom = CustomTraining(vocab_size, 8, 16)
custom.compile(
    optimizer=tf.keras.optimizers.Adam(),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
custom.fit(dataset, epochs=1)
mean = tf.metrics.Mean()
for epoch in range(2):
    mean.reset_state()
    for batch_n, (inp, target) in enumerate(dataset):
        logs = custom.train_step([inp, target])
        mean.update_state(logs["loss"])
    custom.save_weights(f"ckpt_{epoch}.weights.h5")
    print(f"Epoch {epoch + 1} Loss: {mean.result().numpy():.4f}")
states, next_char, result = None, tf.constant(["a"]), []
for n in range(20):
    ids = ids_from_chars(tf.strings.unicode_split(next_char, "UTF-8"))
    logits, states = custom(ids.to_tensor(), states=states, return_state=True)
    next_char = chars_from_ids(tf.argmax(logits[:, -1], axis=-1))
    result.append(next_char)
print(tf.strings.join(result)[0].numpy())
