"""Trains a classifier of handwritten digits with a loop of its own.

On two ranks:

    keras-ring run -np 2 -- python examples/tape_digits.py

In one process:

    python examples/tape_digits.py
"""

import hashlib

import keras
import tensorflow as tf
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 20, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 0.1, "Learning rate.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_model():
    """Returns a network with one hidden layer."""
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="relu"),
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
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16.0).astype("float32"),
        labels,
        test_size=0.2,
        random_state=FLAGS.seed,
    )
    # Each rank trains on its part: split first, then shuffle and batch.
    dataset = kr.data.shard(
        tf.data.Dataset.from_tensor_slices((x_train, y_train)),
        shuffle=True,
        seed=FLAGS.seed,
    ).batch(max(1, FLAGS.batch_size // kr.size()))

    model = make_model()
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(FLAGS.learning_rate, momentum=0.9)
    optimizer.build(model.trainable_variables)
    kr.broadcast_model(model, optimizers=[optimizer])

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        tape = kr.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    for epoch in range(FLAGS.epochs):
        mean_loss = keras.metrics.Mean()
        for x, y in dataset:
            mean_loss.update_state(train_step(x, y))
        # All ranks take part in the sum, then one of them prints it.
        loss = kr.allreduce(mean_loss.result(), name="loss_of_epoch")
        if kr.rank() == 0:
            print(f"epoch {epoch + 1}: loss {float(loss):.4f}", flush=True)

    accuracy = keras.metrics.SparseCategoricalAccuracy()
    accuracy.update_state(y_test, model(x_test, training=False))
    print(
        f"rank {kr.rank()}: test accuracy {float(accuracy.result()):.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
