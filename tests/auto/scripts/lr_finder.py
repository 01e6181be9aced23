"""The range of learning rates, found by a fit that breaks off."""

import math

import keras
import numpy as np
from keras import backend as K
from keras.callbacks import LambdaCallback

keras.utils.set_random_seed(8)
rng = np.random.default_rng(8)
x = rng.normal(size=(900, 12))
y = np.argmax(x @ rng.normal(size=(12, 4)), axis=1)


class LRFinder:
    def __init__(self, model):
        self.model = model
        self.losses = []
        self.lrs = []
        self.best_loss = 1e9

    def on_batch_end(self, batch, logs):
        lr = float(self.model.optimizer.learning_rate.numpy())
        self.lrs.append(lr)
        loss = logs["loss"]
        self.losses.append(loss)
        if batch > 5 and (math.isnan(loss) or loss > self.best_loss * 1.5):
            self.model.stop_training = True
            return
        if loss < self.best_loss:
            self.best_loss = loss
        lr *= self.lr_mult
        self.model.optimizer.learning_rate.assign(lr)

    def find(self, x_train, y_train, start_lr, end_lr, batch_size, epochs):
        num_batches = epochs * x_train.shape[0] / batch_size
        self.lr_mult = (end_lr / start_lr) ** (1 / num_batches)
        self.model.save_weights("tmp.weights.h5")
        original_lr = float(self.model.optimizer.learning_rate.numpy())
        self.model.optimizer.learning_rate.assign(start_lr)
        callback = LambdaCallback(
            on_batch_end=lambda batch, logs: self.on_batch_end(batch, logs)
        )
        self.model.fit(
            x_train,
            y_train,
            batch_size=batch_size,
            epochs=epochs,
            callbacks=[callback],
        )
        self.model.load_weights("tmp.weights.h5")
        self.model.optimizer.learning_rate.assign(original_lr)

    def best(self, sma=3):
        derivatives = [0] * sma
        for i in range(sma, len(self.lrs)):
            derivatives.append((self.losses[i] - self.losses[i - sma]) / sma)
        return self.lrs[int(np.argmin(derivatives))]


class SmoothedFinder(keras.callbacks.Callback):
    """As above, by the loss of the batch itself, smoothed."""

    def __init__(self, start_lr=1e-5, end_lr=10, num_it=60, beta=0.9):
        super().__init__()
        self.start_lr, self.end_lr = start_lr, end_lr
        self.num_it, self.beta = num_it, beta
        self.lrs, self.smoothed = [], []

    def on_train_begin(self, logs=None):
        self.average, self.best, self.step, self.seen = 0.0, 1e9, 0, 0.0
        self.model.optimizer.learning_rate = self.start_lr

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        total = logs["loss"] * (batch + 1)
        loss = total - self.seen
        self.seen = total
        self.average = self.beta * self.average + (1 - self.beta) * loss
        smoothed = self.average / (1 - self.beta**self.step)
        self.lrs.append(float(self.model.optimizer.learning_rate))
        self.smoothed.append(float(smoothed))
        if self.step > 1 and smoothed > 4 * self.best:
            self.model.stop_training = True
            return
        self.best = min(self.best, smoothed)
        ratio = (self.end_lr / self.start_lr) ** (self.step / self.num_it)
        self.model.optimizer.learning_rate = self.start_lr * ratio

    def on_epoch_end(self, epoch, logs=None):
        self.seen = 0.0


def build():
    model = keras.Sequential(
        [
            keras.layers.Input((12,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


model = build()
finder = LRFinder(model)
finder.find(x, y, start_lr=1e-4, end_lr=100, batch_size=32, epochs=3)
print("stopped after", len(finder.lrs), "best", round(finder.best(), 8))
K.clear_session()
other = build()
smoothed = SmoothedFinder()
other.fit(x, y, batch_size=32, epochs=3, callbacks=[smoothed], verbose=0)
print("stopped after", len(smoothed.lrs), smoothed.smoothed[-1])
np.savetxt("rates.csv", np.stack([smoothed.lrs, smoothed.smoothed], 1))
model.optimizer.learning_rate.assign(finder.best())
model.fit(x, y, batch_size=32, epochs=2, verbose=2)
