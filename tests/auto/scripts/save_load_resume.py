import os

import keras
from sklearn.datasets import load_digits

keras.utils.set_random_seed(66)
x, y = load_digits(return_X_y=True)
x = x / 16.0
path = os.path.join("saved", "model.keras")
os.makedirs("saved", exist_ok=True)

model = keras.Sequential(
    [
        keras.layers.Input((64,)),
        keras.layers.Dense(20, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    keras.optimizers.Adam(0.003),
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(x[:999], y[:999], epochs=2, batch_size=50)
model.save(path)
before = model.evaluate(x[999:], y[999:], verbose=0)
del model

restored = keras.models.load_model(path)
after = restored.evaluate(x[999:], y[999:], verbose=0)
print("loss before and after:", before[0], after[0])
restored.fit(x[:999], y[:999], initial_epoch=2, epochs=4, batch_size=50)
restored.save_weights("saved/final.weights.h5")

fresh = keras.models.clone_model(restored)
fresh.load_weights("saved/final.weights.h5")
print(fresh.predict(x[:2], verbose=0).argmax(1), y[:2])
