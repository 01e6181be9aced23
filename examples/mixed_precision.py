"""Trains in float16, with the scaled loss that needs.

On two ranks:

    keras-ring run -np 2 -- python examples/mixed_precision.py

`model.compile` puts a `LossScaleOptimizer` around the optimizer. Gradients are
reduced before it looks for an overflow, so that one on any rank is one on all,
and all skip the step together.
"""

import hashlib

import keras
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 10, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_enum(
    "policy",
    "mixed_float16",
    ["mixed_float16", "mixed_bfloat16", "float32"],
    "What the layers compute in.",
)
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_model():
    """Returns a small convolutional network that ends in float32."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, dtype="float32"),
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
    keras.config.set_dtype_policy(FLAGS.policy)

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=FLAGS.seed
    )
    x_train, y_train = kr.data.shard(
        (x_train, y_train), shuffle=True, seed=FLAGS.seed
    )

    model = make_model()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.005)),
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
