"""Learns to add two numbers, written as characters."""

import keras
import numpy as np
from keras import layers

TRAINING_SIZE, DIGITS = 700, 2
MAXLEN = DIGITS + 1 + DIGITS
keras.utils.set_random_seed(26)


class CharacterTable:
    def __init__(self, chars):
        self.chars = sorted(set(chars))
        self.char_indices = {c: i for i, c in enumerate(self.chars)}

    def encode(self, C, num_rows):
        x = np.zeros((num_rows, len(self.chars)))
        for i, c in enumerate(C):
            x[i, self.char_indices[c]] = 1
        return x

    def decode(self, x):
        return "".join(self.chars[i] for i in x.argmax(axis=-1))


ctable = CharacterTable("0123456789+ ")
questions, expected, seen = [], [], set()
while len(questions) < TRAINING_SIZE:
    a, b = (int(v) for v in np.random.randint(0, 100, 2))
    if (a, b) in seen:
        continue
    seen.add((a, b))
    questions.append(f"{a}+{b}".ljust(MAXLEN))
    expected.append(str(a + b).ljust(DIGITS + 1))
x = np.array([ctable.encode(q, MAXLEN) for q in questions])
y = np.array([ctable.encode(e, DIGITS + 1) for e in expected])
split_at = len(x) - len(x) // 10
x_train, x_val = x[:split_at], x[split_at:]
y_train, y_val = y[:split_at], y[split_at:]

model = keras.Sequential()
model.add(layers.Input((MAXLEN, len(ctable.chars))))
model.add(layers.LSTM(24))
model.add(layers.RepeatVector(DIGITS + 1))
model.add(layers.LSTM(24, return_sequences=True))
model.add(layers.Dense(len(ctable.chars), activation="softmax"))
model.compile(
    loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"]
)
for epoch in range(1, 4):
    print("Iteration", epoch)
    model.fit(
        x_train,
        y_train,
        batch_size=32,
        epochs=1,
        validation_data=(x_val, y_val),
    )
    for _ in range(3):
        ind = np.random.randint(0, len(x_val))
        preds = model.predict(x_val[ind : ind + 1], verbose=0)
        print(
            "Q",
            questions[split_at + ind],
            "T",
            expected[split_at + ind],
            end=" ",
        )
        print("got", ctable.decode(preds[0]))
