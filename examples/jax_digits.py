"""Trains a classifier of handwritten digits with JAX and Optax.

On two ranks:

    keras-ring run -np 2 -- python examples/jax_digits.py

In one process:

    python examples/jax_digits.py
"""

import hashlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring.jax as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 20, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 0.003, "Learning rate.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def init_parameters(key):
    """Returns the parameters of a small convolutional network."""
    keys = jax.random.split(key, 4)
    initializer = jax.nn.initializers.he_normal()
    shapes = [(3, 3, 1, 16), (3, 3, 16, 32), (512, 64), (64, 10)]
    return [
        {"kernel": initializer(key, shape), "bias": jnp.zeros(shape[-1])}
        for key, shape in zip(keys, shapes, strict=True)
    ]


def logits_of(parameters, images):
    """Returns the scores of the ten digits for images of shape [n, 8, 8, 1]."""
    first, second, dense, last = parameters
    x = images
    for layer in (first, second):
        x = jax.lax.conv_general_dilated(
            x,
            layer["kernel"],
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = jax.nn.relu(x + layer["bias"])
    x = jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ dense["kernel"] + dense["bias"])
    return x @ last["kernel"] + last["bias"]


def loss_of(parameters, images, labels):
    """Returns the mean cross entropy of a batch."""
    logits = logits_of(parameters, images)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses.mean()


def make_data(seed):
    """Returns the images and labels to train on, and those to test with."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    return train_test_split(images, labels, test_size=0.2, random_state=seed)


def weights_checksum(parameters):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for value in jax.tree.leaves(parameters):
        checksum.update(np.asarray(value).tobytes())
    return checksum.hexdigest()[:16]


def main(argv):
    """Trains, then tests on images that were not trained on."""
    del argv
    kr.init()
    x_train, x_test, y_train, y_test = make_data(FLAGS.seed)

    optimizer = kr.DistributedOptimizer(optax.adam(FLAGS.learning_rate))
    parameters = init_parameters(jax.random.key(FLAGS.seed))
    # Those of rank 0: other ranks may have drawn other ones.
    parameters, state = kr.broadcast((parameters, optimizer.init(parameters)))

    @jax.jit
    def step(parameters, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(
            parameters, images, labels
        )
        updates, state = optimizer.update(gradients, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        return parameters, state, kr.allreduce(loss, name="loss")

    # Each rank trains on its part of a batch, in an order that all share.
    batch = max(1, FLAGS.batch_size // kr.size())
    steps = len(x_train) // (batch * kr.size())
    began = time.perf_counter()
    for epoch in range(FLAGS.epochs):
        order = np.random.default_rng([FLAGS.seed, epoch]).permutation(
            len(x_train)
        )
        mine = order[kr.rank() :: kr.size()]
        losses = []
        for place in range(steps):
            rows = mine[place * batch : (place + 1) * batch]
            parameters, state, loss = step(
                parameters, state, x_train[rows], y_train[rows]
            )
            losses.append(loss)
        if kr.rank() == 0:
            mean = float(jnp.mean(jnp.stack(losses)))
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)
    if kr.rank() == 0:
        rate = FLAGS.epochs * steps / (time.perf_counter() - began)
        print(f"{rate:.0f} steps per second")

    # Every rank has the same weights, so each can test by itself.
    guesses = jax.jit(logits_of)(parameters, x_test).argmax(1)
    accuracy = float((guesses == y_test).mean())
    print(
        f"rank {kr.rank()}: test accuracy {accuracy:.4f}, "
        f"weights sha256 {weights_checksum(parameters)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
