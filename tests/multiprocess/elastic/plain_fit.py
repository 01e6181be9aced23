"""A `fit` like any other, which ranks leave and join; it counts its samples.

    keras-ring run -np 3 --max-np 3 -- \
        python -m tests.multiprocess.elastic.plain_fit 1:0.5,3:0.9

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


class Model(Counting):
    """Counts the begins of epochs as well."""

    def __init__(self):
        super().__init__()
        self.begins = self.add_weight(
            shape=(), initializer="zeros", trainable=False
        )


class Counts(keras.callbacks.Callback):
    """Keeps what epochs have counted, and the numbers of batches."""

    shared_state = ("seen", "sizes")

    def __init__(self, deadly):
        super().__init__()
        self.deadly = deadly
        self.seen = []
        self.sizes = []
        # By epoch, the numbers of the batches that this rank was told of.
        self.batches = {}

    def on_epoch_begin(self, epoch, logs=None):
        self.batches[epoch] = []
        # Once for each epoch, also on a rank that comes in.
        self.model.begins.assign_add(1.0)

    def on_train_batch_end(self, batch, logs=None):
        epoch = max(self.batches)
        self.batches[epoch].append(batch)
        if not self.sizes or self.sizes[-1] != kr.size():
            self.sizes.append(kr.size())
        if not self.deadly.is_alive():
            self.deadly.start()
        time.sleep(0.01)

    def on_epoch_end(self, epoch, logs=None):
        counts = -self.model.counts.numpy().astype(int)
        self.seen.append((int(counts.min()), int(counts.max())))


def main():
    """Trains, and prints the least and the most counts of each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("deaths", nargs="?", default="")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--log", help="a file for CSVLogger")
    options = parser.parse_args()
    kr.init()
    was = int(os.environ.get("KERAS_RING_JOINS_AS", kr.rank()))
    terminate_on_nan._ALLOWANCE = 0.0
    arrays = np.arange(SAMPLES), np.zeros(SAMPLES, np.float32)
    model = Model()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(1.0), op=kr.Sum),
        lambda y, sums: tf.reduce_sum(sums),
        metrics=["mae"],
        jit_compile=False,
    )
    counts = Counts(deaths.timer(options.deaths, was))
    # It grows, so all ranks wait for as many epochs.
    stopping = keras.callbacks.EarlyStopping("mae", patience=options.epochs)
    callbacks = [
        kr.callbacks.BroadcastGlobalVariablesCallback(0),
        kr.callbacks.MetricAverageCallback(),
        keras.callbacks.TerminateOnNaN(),
        kr.callbacks.ConsistencyCheck(every=7),
        counts,
        stopping,
    ]
    if options.log:
        callbacks.append(keras.callbacks.CSVLogger(options.log))
    history = model.fit(
        kr.data.batches(arrays, BATCH, shuffle=True),
        epochs=options.epochs,
        verbose=0,
        validation_data=(arrays[0][:BATCH], arrays[1][:BATCH]),
        validation_batch_size=BATCH,
        callbacks=callbacks,
    )
    for epoch, batches in counts.batches.items():
        first = batches[0]
        assert batches == [*range(first, first + len(batches))], batches
        assert not first or epoch == min(counts.batches), (epoch, batches)
    total = int(-model.counts.numpy().sum())
    seen = " ".join(f"{least}..{most}" for least, most in counts.seen)
    assert history.epoch == [*range(options.epochs)], history.epoch
    epochs = {len(each) for each in history.history.values()}
    assert epochs == {options.epochs}, history.history
    assert int(model.begins) == options.epochs, model.begins
    assert stopping.wait == options.epochs - 1, stopping.wait
    print(
        f"was {was}: rank {kr.rank()} of {kr.size()}, sizes"
        f" {','.join(map(str, counts.sizes))}, {len(counts.seen)} epochs,"
        f" {total} in all, counts {seen}",
        flush=True,
    )
    kr.shutdown()


if __name__ == "__main__":
    main()
