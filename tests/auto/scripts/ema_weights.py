"""Moving averages of weights: Keras' own, and a callback that swaps them."""

import keras
import numpy as np

keras.utils.set_random_seed(31)
rng = np.random.default_rng(31)
x = rng.normal(size=(412, 10))
y = np.sin(x[:, :1]) + 0.3 * rng.normal(size=(412, 1))
x_val, y_val, x, y = x[:90], y[:90], x[90:], y[90:]


class EMACallback(keras.callbacks.Callback):
    """Validates with the averages, and trains on with the weights."""

    def __init__(self, decay=0.95):
        super().__init__()
        self.decay = decay
        self.averages = None
        self.kept = None

    def on_train_begin(self, logs=None):
        self.averages = self.model.get_weights()

    def on_train_batch_end(self, batch, logs=None):
        for i, weight in enumerate(self.model.get_weights()):
            self.averages[i] = (
                self.decay * self.averages[i] + (1 - self.decay) * weight
            )

    def on_test_begin(self, logs=None):
        if self.averages is not None:
            self.kept = self.model.get_weights()
            self.model.set_weights(self.averages)

    def on_test_end(self, logs=None):
        if self.kept is not None:
            self.model.set_weights(self.kept)

    def on_epoch_end(self, epoch, logs=None):
        if logs["val_loss"] < getattr(self, "best", np.inf):
            self.best = logs["val_loss"]
            self.kept = self.model.get_weights()
            self.model.set_weights(self.averages)
            self.model.save_weights("best_ema.weights.h5")
            self.model.set_weights(self.kept)

    def on_train_end(self, logs=None):
        self.model.set_weights(self.averages)
        self.averages = None
        self.kept = None


def build():
    return keras.Sequential(
        [
            keras.layers.Input((10,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )


by_hand = build()
by_hand.compile("adam", "mse", metrics=["mae"])
by_hand.fit(
    x,
    y,
    batch_size=32,
    epochs=4,
    validation_data=(x_val, y_val),
    callbacks=[EMACallback()],
    verbose=2,
)
print("by hand", by_hand.evaluate(x_val, y_val, verbose=0))

swapped = build()
swapped.compile(
    keras.optimizers.SGD(
        0.05,
        momentum=0.9,
        use_ema=True,
        ema_momentum=0.9,
        ema_overwrite_frequency=None,
    ),
    "mse",
)
swapped.fit(
    x,
    y,
    batch_size=32,
    epochs=4,
    validation_data=(x_val, y_val),
    callbacks=[
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        keras.callbacks.ModelCheckpoint(
            "ema.keras", monitor="val_loss", save_best_only=True
        ),
    ],
    verbose=2,
)
print("swapped", swapped.evaluate(x_val, y_val, verbose=0))

overwritten = build()
overwritten.compile(
    keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=5
    ),
    "mse",
)
overwritten.fit(x, y, batch_size=32, epochs=3, verbose=2)
print("overwritten", overwritten.evaluate(x_val, y_val, verbose=0))
