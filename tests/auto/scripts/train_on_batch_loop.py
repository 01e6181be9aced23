import keras
import numpy as np
from sklearn.datasets import load_digits

keras.utils.set_random_seed(88)
x, y = load_digits(return_X_y=True)
x = x / 16
model = keras.Sequential(
    [keras.layers.Dense(24, "relu"), keras.layers.Dense(10, "softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
batch = 70
n = 1010
for epoch in range(3):
    order = np.random.permutation(n)
    for start in range(0, n, batch):
        rows = order[start : start + batch]
        loss, acc = model.train_on_batch(x[rows], y[rows])
    val = model.test_on_batch(x[n:], y[n:])
    print(f"epoch {epoch}: loss {loss:.4f} acc {acc:.4f} val {val[0]:.4f}")
print(model.predict_on_batch(x[n : n + 5]).argmax(-1), y[n : n + 5])
