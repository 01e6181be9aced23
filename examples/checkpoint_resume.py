"""Trains, is interrupted, and goes on where it had come to.

On two ranks, twice: the first run stops by itself after some steps, as one
that was killed would, and the second one goes on from there.

    keras-ring run -np 2 -- python examples/checkpoint_resume.py --stop_after=25
    keras-ring run -np 2 -- python examples/checkpoint_resume.py

The weights at the end are, to the bit, those of one run without a stop.
"""

import hashlib
import os

import keras
import tensorflow as tf
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_string("directory", "digits_backup", "Where the state is saved.")
flags.DEFINE_integer("save_every", 10, "Steps from one save to the next.")
flags.DEFINE_integer("stop_after", 0, "Steps to stop after; 0 is not to stop.")
flags.DEFINE_integer("epochs", 5, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


class StopAfter(keras.callbacks.Callback):
    """Ends the program after some steps, as if it had been killed."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        """Counts, and ends the program."""
        self.steps -= 1
        if self.steps == 0:
            print(f"rank {kr.rank()}: stopped", flush=True)
            # All ranks are here, and none waits for another any more.
            kr.barrier(name="stopped")
            os._exit(0)


def make_model():
    """Returns a network with dropout, whose seeds are saved, too."""
    return keras.Sequential(
        [
            keras.Input((64,)),
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
    """Trains, or goes on with it, and tests."""
    del argv
    kr.init()
    keras.utils.set_random_seed(FLAGS.seed)

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=FLAGS.seed
    )
    # Its order depends on the seed and the number of the epoch only, so that
    # a run which goes on reads what the one before would have read.
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = kr.data.shard(dataset, shuffle=True, seed=FLAGS.seed)
    dataset = dataset.batch(max(1, FLAGS.batch_size // kr.size()))

    model = make_model()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.003)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
        kr.callbacks.MetricAverageCallback(),
        kr.callbacks.BackupAndRestore(
            FLAGS.directory, save_freq=FLAGS.save_every
        ),
    ]
    if FLAGS.stop_after:
        callbacks.append(StopAfter(FLAGS.stop_after))
    model.fit(
        dataset,
        epochs=FLAGS.epochs,
        callbacks=callbacks,
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
