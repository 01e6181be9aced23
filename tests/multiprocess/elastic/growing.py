"""A training that ranks leave and join, and that counts its samples.

    keras-ring run -np 3 --max-np 3 -- \
        python -m tests.multiprocess.elastic.growing loop 1:0.5,3:0.9

As `samples.py`: the weights are the negative numbers of times that each sample
was trained on. Processes kill themselves at the seconds after their first step
that are given; those that join are numbered on.
"""

import argparse
import os
import time

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.fit import terminate_on_nan
from tests.multiprocess.elastic import deaths
from tests.multiprocess.elastic.samples import BATCH, SAMPLES, Counting


class Noting(keras.callbacks.Callback):
    """Calls a function after each batch and each epoch."""

    def __init__(self, after_batch, after_epoch):
        super().__init__()
        self.after_batch = after_batch
        self.after_epoch = after_epoch

    def on_train_batch_end(self, batch, logs=None):
        self.after_batch()

    def on_epoch_end(self, epoch, logs=None):
        self.after_epoch()


def main():
    """Trains, and prints the least and the most counts of each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("loop", "fit", "tape"))
    parser.add_argument("deaths", nargs="?", default="")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--log", help="a file for CSVLogger, in fit")
    options = parser.parse_args()
    kr.init()
    was = int(os.environ.get("KERAS_RING_JOINS_AS", kr.rank()))
    deadly = deaths.timer(options.deaths, was)
    model = Counting()
    optimizer = keras.optimizers.SGD(1.0)
    if options.how != "tape":
        optimizer = kr.DistributedOptimizer(optimizer, op=kr.Sum)
    arrays = np.arange(SAMPLES), np.zeros(SAMPLES, np.float32)
    data = kr.data.batches(arrays, BATCH, shuffle=True)
    model.compile(
        optimizer,
        lambda y, sums: tf.reduce_sum(sums),
        metrics=["mae"],
        jit_compile=False,
    )
    model.build((None,))
    state = kr.elastic.KerasState(model, epoch=0, seen=[], sizes=[])

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(model(ids))
        if options.how == "tape":
            tape = kr.DistributedGradientTape(tape, op=kr.Sum)
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    def after_batch():
        if not deadly.is_alive():
            deadly.start()
        time.sleep(0.01)
        if options.how != "fit":
            state.commit()

    def after_epoch():
        counts = -model.counts.numpy().astype(int)
        state.seen.append((int(counts.min()), int(counts.max())))
        if options.how != "fit":
            state.epoch += 1

    # It lives longer than a `fit`, and ranks exchange losses rarely at once.
    terminate_on_nan._ALLOWANCE = 0.0
    watcher = keras.callbacks.TerminateOnNaN()
    restarts = 0

    @kr.elastic.run
    def train(state):
        nonlocal restarts
        restarts += 1
        state.sizes = [*state.sizes, kr.size()]
        if options.how == "fit":
            callbacks = [
                kr.callbacks.BroadcastGlobalVariablesCallback(0),
                watcher,
                Noting(after_batch, after_epoch),
                kr.elastic.UpdateEpochStateCallback(state),
                kr.elastic.CommitStateCallback(state),
            ]
            if options.log:
                callbacks.insert(0, keras.callbacks.CSVLogger(options.log))
            model.fit(
                data,
                initial_epoch=state.epoch,
                epochs=options.epochs,
                verbose=0,
                callbacks=callbacks,
            )
        while state.epoch < options.epochs:
            for ids, _ in data:
                step(ids)
                after_batch()
            after_epoch()

    train(state)
    counts = -model.counts.numpy().astype(int)
    seen = " ".join(f"{least}..{most}" for least, most in state.seen)
    sizes = ",".join(map(str, state.sizes))
    print(
        f"was {was}: rank {kr.rank()} of {kr.size()}, {restarts} starts of"
        f" {sizes} ranks, {len(state.seen)} epochs, {counts.sum()} in all,"
        f" counts {seen}",
        flush=True,
    )
    kr.shutdown()


if __name__ == "__main__":
    main()
