"""Trains a classifier of handwritten digits as TensorFlow 1 programs do.

On two ranks:

    keras-ring run -np 2 -- python examples/monitored_session.py

In one process:

    python examples/monitored_session.py

Called again with the same `--directory`, it goes on from its last checkpoint.
"""

import hashlib

import numpy as np
import tensorflow as tf
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

v1 = tf.compat.v1
FLAGS = flags.FLAGS

flags.DEFINE_integer("steps", 400, "Number of steps.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 0.1, "Learning rate.")
flags.DEFINE_string("directory", "", "Where checkpoints are; none if empty.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_logits(images):
    """Returns the output of a network with one hidden layer."""

    def layer(name, inputs, size):
        shape = [inputs.shape[-1], size]
        kernel = v1.get_variable(f"{name}/kernel", shape)
        bias = v1.get_variable(f"{name}/bias", [size])
        return tf.matmul(inputs, kernel) + bias

    return layer("output", tf.nn.relu(layer("hidden", images, 64)), 10)


def weights_checksum(weights):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for weight in weights:
        checksum.update(np.ascontiguousarray(weight).tobytes())
    return checksum.hexdigest()[:16]


class Results(v1.train.SessionRunHook):
    """Computes something when the training has ended."""

    def __init__(self, tensors):
        self._tensors = tensors
        self.values = None

    def end(self, session):
        """Runs what is wanted once more."""
        self.values = session.run(self._tensors)


def main(argv):
    """Trains, then tests on images that were not trained on."""
    del argv
    v1.disable_v2_behavior()
    kr.init()
    v1.logging.set_verbosity(v1.logging.ERROR)
    v1.set_random_seed(FLAGS.seed + kr.rank())

    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16.0).astype("float32"),
        labels.astype("int32"),
        test_size=0.2,
        random_state=FLAGS.seed,
    )
    # Each rank trains on its part: split first, then shuffle and batch.
    part = kr.data.shard((x_train, y_train))
    dataset = tf.data.Dataset.from_tensor_slices(part)
    dataset = dataset.shuffle(2000, FLAGS.seed).repeat()
    dataset = dataset.batch(max(1, FLAGS.batch_size // kr.size()))
    x, y = v1.data.make_one_shot_iterator(dataset).get_next()

    with v1.variable_scope("model"):
        logits = make_logits(x)
    with v1.variable_scope("model", reuse=True):
        test_logits = make_logits(tf.constant(x_test))
    loss = v1.losses.sparse_softmax_cross_entropy(y, logits)
    right = tf.equal(tf.argmax(test_logits, 1, tf.int32), y_test)
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))

    step = v1.train.get_or_create_global_step()
    optimizer = kr.DistributedOptimizer(
        v1.train.MomentumOptimizer(FLAGS.learning_rate, 0.9)
    )
    train_op = optimizer.minimize(loss, step)

    results = Results([accuracy, v1.trainable_variables()])
    hooks = [
        # Before hooks that look at the global step: rank 0 alone reads it.
        kr.BroadcastGlobalVariablesHook(0),
        v1.train.StopAtStepHook(last_step=FLAGS.steps),
        results,
    ]
    is_writer = kr.rank() == 0 and FLAGS.directory
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=FLAGS.directory if is_writer else None,
        save_checkpoint_steps=100,
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
        hooks=hooks,
    ) as session:
        while not session.should_stop():
            _, shown, number = session.run([train_op, loss, step])
            if kr.rank() == 0 and number % 100 == 0:
                print(f"step {number}: loss {shown:.4f}", flush=True)

    value, weights = results.values
    print(
        f"rank {kr.rank()}: test accuracy {value:.4f}, "
        f"weights sha256 {weights_checksum(weights)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
