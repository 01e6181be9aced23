"""Normalizes by the batches of all ranks, each of which is small.

On two ranks:

    keras-ring run -np 2 -- python examples/sync_batch_norm.py

Each rank has four images in a step. `keras.layers.BatchNormalization` would
know the mean and variance of those only; `kr.SyncBatchNormalization` takes
them from all images of the step.
"""

import hashlib

import keras
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 3, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer("batch_size", 4, "Images in a step, on each rank.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_model():
    """Returns a convolutional network with two normalizations."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", use_bias=False),
            kr.SyncBatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Conv2D(32, 3, strides=2, use_bias=False),
            kr.SyncBatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


def weights_checksum(model):
    """Returns a short SHA-256 of all weights, moving statistics included."""
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
    x_train, y_train = kr.data.shard(
        (x_train, y_train), shuffle=True, seed=FLAGS.seed
    )

    model = make_model()
    schedule = kr.schedules.Warmup(0.01, warmup_steps=50)
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(schedule, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=FLAGS.batch_size,
        epochs=FLAGS.epochs,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            kr.callbacks.MetricAverageCallback(),
        ],
        verbose=2 if kr.rank() == 0 else 0,
    )

    results = model.evaluate(x_test, y_test, return_dict=True, verbose=0)
    print(
        f"rank {kr.rank()}: test accuracy {results['accuracy']:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
