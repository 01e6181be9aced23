"""Trains with batches that are larger than what fits into memory.

On two ranks:

    keras-ring run -np 2 -- python examples/gradient_accumulation.py

Each rank adds up the gradients of four small batches; they are reduced and
used once. So there is a quarter of the communication, too.
"""

import hashlib

import keras
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 20, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer("batch_size", 8, "Images in a pass, on each rank.")
flags.DEFINE_integer("passes", 4, "Passes to an update.", lower_bound=1)
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
    x_train, y_train = kr.data.shard(
        (x_train, y_train), shuffle=True, seed=FLAGS.seed
    )

    model = make_model()
    model.compile(
        kr.DistributedOptimizer(
            keras.optimizers.SGD(0.1, momentum=0.9),
            backward_passes_per_step=FLAGS.passes,
            average_aggregated_gradients=True,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    before = kr.metrics()["entries"]
    model.fit(
        x_train,
        y_train,
        batch_size=FLAGS.batch_size,
        epochs=FLAGS.epochs,
        verbose=2 if kr.rank() == 0 else 0,
    )
    if kr.rank() == 0:
        passes = FLAGS.epochs * -(-len(x_train) // FLAGS.batch_size)
        gradients = passes * len(model.trainable_weights)
        reduced = kr.metrics()["entries"] - before
        print(f"{reduced} of {gradients} gradients were reduced", flush=True)

    # Every rank has the same weights, so each can test by itself.
    results = model.evaluate(x_test, y_test, return_dict=True, verbose=0)
    print(
        f"rank {kr.rank()}: test accuracy {results['accuracy']:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
