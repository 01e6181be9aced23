"""Trains a classifier of handwritten digits with `model.fit`.

On two ranks:

    keras-ring run -np 2 -- python examples/keras_digits.py

In one process:

    python examples/keras_digits.py
"""

import hashlib
import time

import keras
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 20, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 0.005, "Learning rate after the warm-up.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")
flags.DEFINE_boolean(
    "jit", None, "Whether XLA compiles the step. Unset: Keras decides."
)


class StepRate(keras.callbacks.Callback):
    """Measures the steps per second of all epochs but the first.

    In the first, the step is traced and compiled.
    """

    def __init__(self):
        super().__init__()
        self.value = float("nan")
        self._steps = 0

    def on_epoch_end(self, epoch, logs=None):
        """Starts the clock, or reads it."""
        if epoch == 0:
            self._start, self._steps = time.perf_counter(), 0
        else:
            self.value = self._steps / (time.perf_counter() - self._start)

    def on_train_batch_end(self, batch, logs=None):
        """Counts a step."""
        self._steps += 1


def make_model():
    """Returns a small convolutional network."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )


def weights_checksum(model):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for weight in model.get_weights():
        checksum.update(weight.tobytes())
    return checksum.hexdigest()[:16]


def main(argv):
    """Trains, then tests on images that were not trained on."""
    del argv
    kr.init()
    keras.utils.set_random_seed(FLAGS.seed)

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=FLAGS.seed
    )
    # Each rank trains on its part.
    x_train, y_train = kr.data.shard(
        (x_train, y_train), shuffle=True, seed=FLAGS.seed
    )

    model = make_model()
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.Adam(FLAGS.learning_rate)
    )
    model.compile(
        optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile="auto" if FLAGS.jit is None else FLAGS.jit,
    )
    step_rate = StepRate()
    model.fit(
        x_train,
        y_train,
        batch_size=max(1, FLAGS.batch_size // kr.size()),
        epochs=FLAGS.epochs,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            kr.callbacks.MetricAverageCallback(),
            kr.callbacks.LearningRateWarmupCallback(
                FLAGS.learning_rate, warmup_epochs=2
            ),
            step_rate,
        ],
        verbose=2 if kr.rank() == 0 else 0,
    )

    if kr.rank() == 0:
        print(f"{step_rate.value:.0f} steps per second")
    # Every rank has the same weights, so each can test by itself.
    results = model.evaluate(x_test, y_test, return_dict=True, verbose=0)
    print(
        f"rank {kr.rank()}: test accuracy {results['accuracy']:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
