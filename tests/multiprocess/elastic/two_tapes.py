"""Two models that are trained by two tapes in one step.

    keras-ring run --elastic -np 3 -- \
        python -m tests.multiprocess.elastic.two_tapes 1:2

Rank 1 kills itself after its second step. The last batch of each epoch is
smaller, and whoever gets it traces the step again, while others do not. Prints
on each rank that is left a digest of the weights after each step.
"""

import os
import signal
import sys
import zlib

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

SAMPLES = 205
BATCH = 16
EPOCHS = 4


def _networks():
    generator = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(6),
        ]
    )
    critic = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    return generator, critic


def _step_of(generator, critic, optimizers):
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    networks = generator, critic

    @tf.function
    def step(real):
        noise = tf.random.normal([tf.shape(real)[0], 4])
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = critic(generator(noise, training=True), training=True)
            true = critic(real, training=True)
            losses = (
                entropy(tf.ones_like(fake), fake),
                entropy(tf.ones_like(true), true)
                + entropy(tf.zeros_like(fake), fake),
            )
        for tape, loss, network, optimizer in zip(
            (first, second), losses, networks, optimizers, strict=True
        ):
            tape = kr.DistributedGradientTape(tape)
            weights = network.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)

    return step


def main():
    """Trains, and prints the digest."""
    victim, deadly = map(int, sys.argv[1].split(":"))
    kr.init()
    was = kr.rank()
    generator, critic = networks = _networks()
    optimizers = [keras.optimizers.Adam(1e-3) for _ in networks]
    variables = [*generator.variables, *critic.variables]
    kr.broadcast_variables(variables, 0)
    x = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype("float32")
    step = _step_of(generator, critic, optimizers)
    digest, steps = 0, 0
    data = kr.data.batches(x, BATCH, shuffle=True)
    for _ in range(EPOCHS):
        for real in data:
            step(real)
            steps += 1
            if (was, steps) == (victim, deadly):
                os.kill(os.getpid(), signal.SIGKILL)
            for variable in variables:
                digest = zlib.crc32(variable.numpy().tobytes(), digest)
    updates = " and ".join(str(int(each.iterations)) for each in optimizers)
    print(
        f"was {was}: rank {kr.rank()} of {kr.size()}, {steps} steps,"
        f" {updates} updates, digest {digest:08x}",
        flush=True,
    )
    kr.shutdown()


if __name__ == "__main__":
    main()
