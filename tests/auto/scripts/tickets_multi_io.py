"""Tickets with a title, a text and tags; a priority and a department."""

import keras
import numpy as np
from keras import layers

num_tags = 5
num_words = 200
num_departments = 4

keras.utils.set_random_seed(11)

title_input = keras.Input(shape=(None,), name="title")
body_input = keras.Input(shape=(None,), name="body")
tags_input = keras.Input(shape=(num_tags,), name="tags")

title_features = layers.Embedding(num_words, 8)(title_input)
body_features = layers.Embedding(num_words, 8)(body_input)
title_features = layers.LSTM(12)(title_features)
body_features = layers.LSTM(6)(body_features)
x = layers.concatenate([title_features, body_features, tags_input])
priority_pred = layers.Dense(1, name="priority")(x)
department_pred = layers.Dense(num_departments, name="department")(x)

model = keras.Model(
    inputs=[title_input, body_input, tags_input],
    outputs={"priority": priority_pred, "department": department_pred},
)
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss={
        "priority": keras.losses.BinaryCrossentropy(from_logits=True),
        "department": keras.losses.CategoricalCrossentropy(from_logits=True),
    },
    loss_weights={"priority": 1.0, "department": 0.2},
    metrics={"department": ["accuracy"]},
)

n = 325
title_data = np.random.randint(num_words, size=(n, 7))
body_data = np.random.randint(num_words, size=(n, 15))
tags_data = np.random.randint(2, size=(n, num_tags)).astype("float32")
priority_targets = np.random.random(size=(n, 1))
dept_targets = np.eye(num_departments)[
    np.random.randint(num_departments, size=n)
]
model.fit(
    {"title": title_data, "body": body_data, "tags": tags_data},
    {"priority": priority_targets, "department": dept_targets},
    epochs=4,
    batch_size=32,
)
out = model.predict(
    {"title": title_data[:9], "body": body_data[:9], "tags": tags_data[:9]}
)
print({name: value.shape for name, value in out.items()})
