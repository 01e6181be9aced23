"""Accumulated gradients with weights, an average, and a ragged end."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(44)
rng = np.random.default_rng(44)
words = rng.integers(1, 50, size=(333, 7))
y = (words[:, 0] % 3 + words[:, 1] % 2 > 1).astype("int32")
weight = rng.uniform(0.1, 3.0, size=333)


def build(optimizer):
    model = keras.Sequential(
        [
            keras.layers.Embedding(50, 6),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(
        optimizer,
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=["accuracy"],
    )
    return model


accumulating = build(
    keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(0.02, 100),
        weight_decay=0.01,
        global_clipnorm=0.5,
        gradient_accumulation_steps=4,
        use_ema=True,
        ema_momentum=0.9,
    )
)
data = tf.data.Dataset.from_tensor_slices((words, y, weight))
data = data.shuffle(333, seed=1).batch(20)
accumulating.fit(data, epochs=3, verbose=2)
print("updates", int(accumulating.optimizer.iterations))
accumulating.save("accumulating.keras")
again = keras.models.load_model("accumulating.keras")
again.fit(data, epochs=1, verbose=2)
print(again.evaluate(words, y, sample_weight=weight, verbose=0))
