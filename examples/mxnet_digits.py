"""Trains a classifier of handwritten digits with MXNet and Gluon.

On two ranks:

    keras-ring run -np 2 -- python examples/mxnet_digits.py

In one process:

    python examples/mxnet_digits.py
"""

import hashlib
import time

import mxnet as mx
import numpy as np
from absl import app, flags
from mxnet import autograd, gluon
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring.mxnet as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 20, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 0.003, "Learning rate.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_net():
    """Returns a small convolutional network."""
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, 3, padding=1, activation="relu", in_channels=1),
        gluon.nn.Conv2D(32, 3, padding=1, activation="relu", in_channels=16),
        gluon.nn.MaxPool2D(),
        gluon.nn.Dense(64, activation="relu", in_units=512),
        gluon.nn.Dense(10, in_units=64),
    )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def weights_checksum(net):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for parameter in net.collect_params().values():
        checksum.update(parameter.data().asnumpy().tobytes())
    return checksum.hexdigest()[:16]


def main(argv):
    """Trains, then tests on images that were not trained on."""
    del argv
    kr.init()
    mx.random.seed(FLAGS.seed)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=FLAGS.seed
    )

    net = make_net()
    # Those of rank 0: other ranks may have drawn other ones.
    kr.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = kr.DistributedTrainer(
        net.collect_params(), "adam", {"learning_rate": FLAGS.learning_rate}
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    # Each rank trains on its part of a batch, in an order that all share.
    batch = max(1, FLAGS.batch_size // kr.size())
    steps = len(x_train) // (batch * kr.size())
    began = time.perf_counter()
    for epoch in range(FLAGS.epochs):
        order = np.random.default_rng([FLAGS.seed, epoch]).permutation(
            len(x_train)
        )
        mine = order[kr.rank() :: kr.size()]
        total = mx.nd.zeros((1,))
        for step in range(steps):
            rows = mine[step * batch : (step + 1) * batch]
            with autograd.record():
                loss = loss_of(
                    net(mx.nd.array(x_train[rows])), mx.nd.array(y_train[rows])
                )
            loss.backward()
            trainer.step(batch)
            total += loss.mean()
        mean = kr.allreduce(total / steps, name="loss").asscalar()
        if kr.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)
    if kr.rank() == 0:
        rate = FLAGS.epochs * steps / (time.perf_counter() - began)
        print(f"{rate:.0f} steps per second")

    # Every rank has the same weights, so each can test by itself.
    guesses = net(mx.nd.array(x_test)).asnumpy().argmax(1)
    accuracy = float((guesses == y_test).mean())
    print(
        f"rank {kr.rank()}: test accuracy {accuracy:.4f}, "
        f"weights sha256 {weights_checksum(net)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
