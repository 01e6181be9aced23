import itertools

import keras
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

x, y = load_iris(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(
    x, y, test_size=0.3, random_state=0, stratify=y
)
best = (0.0, None)
results = []
for units, lr in itertools.product([4, 12], [0.01, 0.05]):
    keras.backend.clear_session()
    keras.utils.set_random_seed(units)
    model = keras.Sequential(
        [
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(lr),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    h = model.fit(
        x_train,
        y_train,
        epochs=5,
        batch_size=16,
        validation_data=(x_val, y_val),
        verbose=0,
    )
    acc = max(h.history["val_accuracy"])
    results.append((units, lr, acc))
    print(f"units={units} lr={lr} val_accuracy={acc:.4f}")
    if acc > best[0]:
        best = (acc, (units, lr))
        model.save("best_model.keras")
print("best:", best)
final = keras.models.load_model("best_model.keras")
print(final.evaluate(x_val, y_val, verbose=0))
