"""Trains a model that has a `train_step` of its own.

On two ranks:

    keras-ring run -np 2 -- python examples/custom_train_step.py

The step adds noise to the images along the gradient of the loss, and trains on
both. It needs no change to run on several ranks: what it gives to
`self.optimizer` is reduced there, and gradients for other purposes are not.
"""

import hashlib

import keras
import tensorflow as tf
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 15, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("distance", 0.05, "How far each pixel is moved.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


class Adversarial(keras.Model):
    """A classifier that is trained on images made to mislead it, too."""

    def __init__(self, distance):
        super().__init__()
        self.distance = distance
        self.hidden = keras.layers.Dense(128, activation="relu")
        self.scores = keras.layers.Dense(10)

    def call(self, inputs):
        """Returns the scores of the classes."""
        return self.scores(self.hidden(inputs))

    def train_step(self, data):
        """Trains on a batch and on the batch moved uphill."""
        x, y = data
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(x, y, self(x, training=True))
        moved = x + self.distance * tf.sign(tape.gradient(loss, x))
        with tf.GradientTape() as tape:
            scores = self(x, training=True)
            loss = self.compute_loss(x, y, scores)
            loss += self.compute_loss(moved, y, self(moved, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, scores)
        return self.get_metrics_result()


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
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16.0).astype("float32"),
        labels,
        test_size=0.2,
        random_state=FLAGS.seed,
    )
    x_train, y_train = kr.data.shard(
        (x_train, y_train), shuffle=True, seed=FLAGS.seed
    )

    model = Adversarial(FLAGS.distance)
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.003)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=max(1, FLAGS.batch_size // kr.size()),
        epochs=FLAGS.epochs,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            kr.callbacks.MetricAverageCallback(),
        ],
        verbose=2 if kr.rank() == 0 else 0,
    )

    # Every rank has the same weights, so each can test by itself.
    results = model.evaluate(x_test, y_test, return_dict=True, verbose=0)
    print(
        f"rank {kr.rank()}: test accuracy {results['accuracy']:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
