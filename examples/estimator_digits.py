"""Trains a classifier of handwritten digits with `tf.estimator`.

It needs TensorFlow 2.15 or older, the last that has it. On two ranks:

    keras-ring run -np 2 -- python examples/estimator_digits.py

In one process:

    python examples/estimator_digits.py
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
flags.DEFINE_string("directory", "", "Where the model is; temporary if empty.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def model_fn(features, labels, mode, params):
    """Describes a network with one hidden layer."""
    hidden = v1.layers.dense(features, 64, tf.nn.relu, name="hidden")
    logits = v1.layers.dense(hidden, 10, name="output")
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops={"accuracy": accuracy}
        )
    optimizer = kr.DistributedOptimizer(
        v1.train.MomentumOptimizer(params["learning_rate"], 0.9)
    )
    train_op = optimizer.minimize(loss, v1.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def weights_checksum(estimator):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for name in sorted(estimator.get_variable_names()):
        value = np.asarray(estimator.get_variable_value(name))
        checksum.update(value.tobytes())
    return checksum.hexdigest()[:16]


def main(argv):
    """Trains, then tests on images that were not trained on."""
    del argv
    if not hasattr(tf, "estimator"):
        raise app.UsageError(
            f"TensorFlow {tf.__version__} has no tf.estimator; 2.15 has."
        )
    kr.init()
    v1.logging.set_verbosity(v1.logging.ERROR)

    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16.0).astype("float32"),
        labels.astype("int32"),
        test_size=0.2,
        random_state=FLAGS.seed,
    )

    def train_input():
        # Each rank trains on its part: split first, then shuffle and batch.
        part = kr.data.shard((x_train, y_train))
        dataset = tf.data.Dataset.from_tensor_slices(part)
        dataset = dataset.shuffle(2000, FLAGS.seed).repeat()
        return dataset.batch(max(1, FLAGS.batch_size // kr.size()))

    def test_input():
        return tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(100)

    # Only rank 0 has a directory to keep; the others write to a temporary one.
    directory = FLAGS.directory if kr.rank() == 0 else ""
    estimator = tf.estimator.Estimator(
        model_fn,
        model_dir=directory or None,
        config=tf.estimator.RunConfig(
            tf_random_seed=FLAGS.seed + kr.rank(),
            save_checkpoints_steps=200,
            log_step_count_steps=None,
        ),
        params={"learning_rate": FLAGS.learning_rate},
    )
    results, _ = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(
            train_input,
            max_steps=FLAGS.steps,
            hooks=[kr.BroadcastGlobalVariablesHook(0)],
        ),
        tf.estimator.EvalSpec(
            test_input, steps=None, start_delay_secs=0, throttle_secs=0
        ),
    )
    if kr.rank() == 0:
        print(f"stopped at step {results['global_step']}", flush=True)
    print(
        f"rank {kr.rank()}: test accuracy {results['accuracy']:.4f}, "
        f"weights sha256 {weights_checksum(estimator)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
