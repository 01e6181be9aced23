"""Takes over the layers of one model, frozen, and trains new ones on top.

On two ranks:

    keras-ring run -np 2 -- python examples/transfer_learning.py

A network learns the digits 0 to 4. Its first layers then serve one that learns
5 to 9, first frozen, then trained a little, too. What is frozen has no
gradients, so nothing of it is reduced.
"""

import hashlib

import keras
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 8, "Number of epochs of each part.")
flags.DEFINE_integer(
    "batch_size", 32, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_base():
    """Returns the layers that are taken over."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
        ],
        name="base",
    )


def weights_checksum(model):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for weight in model.get_weights():
        checksum.update(weight.tobytes())
    return checksum.hexdigest()[:16]


def train(model, learning_rate, x, y):
    """Compiles a model for what is trainable now, and trains it."""
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(learning_rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    x, y = kr.data.shard((x, y), shuffle=True, seed=FLAGS.seed)
    model.fit(
        x,
        y,
        batch_size=max(1, FLAGS.batch_size // kr.size()),
        epochs=FLAGS.epochs,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            kr.callbacks.MetricAverageCallback(),
        ],
        verbose=2 if kr.rank() == 0 else 0,
    )


def main(argv):
    """Trains on some digits, then on the others, and tests on those."""
    del argv
    kr.init()
    keras.utils.set_random_seed(FLAGS.seed)

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    base = make_base()
    known = labels < 5
    train(
        keras.Sequential([base, keras.layers.Dense(5)]),
        0.003,
        images[known],
        labels[known],
    )

    x_train, x_test, y_train, y_test = train_test_split(
        images[~known],
        labels[~known] - 5,
        test_size=0.2,
        random_state=FLAGS.seed,
    )
    model = keras.Sequential([base, keras.layers.Dense(5)])
    base.trainable = False
    train(model, 0.01, x_train, y_train)
    # With a small learning rate, so that it forgets nothing.
    base.trainable = True
    train(model, 0.0005, x_train, y_train)

    # Every rank has the same weights, so each can test by itself.
    results = model.evaluate(x_test, y_test, return_dict=True, verbose=0)
    print(
        f"rank {kr.rank()}: test accuracy {results['accuracy']:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
