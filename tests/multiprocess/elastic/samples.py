"""A training that counts how often each sample is trained on.

    keras-ring run --elastic -np 4 -- \
        python -m tests.multiprocess.elastic.samples fit pad 1:0.5,3:0.9

The model has one weight for each sample, whose gradient is 1 for each time that
the sample is in a batch of any rank, and the learning rate is 1. So the weights
are the negative numbers of times in the steps that count. Ranks kill themselves
at the seconds of training that are given.
"""

import argparse
import time

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.elastic import deaths

SAMPLES = 471  # so the last batch is smaller, and is traced for itself
BATCH = 8
EPOCHS = 6


def require_each_epoch(counts, total, epochs, most_uneven):
    """Fails unless each sample is trained on in each epoch, and few twice.

    Args:
        counts: String, such as "1..2 2..3": by epoch, the least and the most
            number of times that a sample was trained on until its end.
        total: Integer, the number of times of all samples at the end.
        epochs: Integer.
        most_uneven: Integer, the number of batches that may be there twice.
    """
    least = [int(each.partition("..")[0]) for each in counts.split()]
    assert least == [*range(1, epochs + 1)]
    assert 0 <= total - epochs * SAMPLES <= most_uneven * BATCH


class Counting(keras.Model):
    """One weight for each sample, summed over a batch."""

    def __init__(self):
        super().__init__()
        self.counts = self.add_weight(shape=(SAMPLES,), initializer="zeros")

    def call(self, ids):
        return tf.linalg.matvec(tf.one_hot(ids, SAMPLES), self.counts)


class Batches(keras.utils.PyDataset):
    """The samples in batches of their own."""

    def __len__(self):
        return -(-SAMPLES // BATCH)

    def __getitem__(self, index):
        ids = np.arange(index * BATCH, min((index + 1) * BATCH, SAMPLES))
        return ids, np.zeros(len(ids), np.float32)


class Epochs(keras.callbacks.Callback):
    """Notes the counts after each epoch; begins the time of the deaths."""

    def __init__(self, deadly):
        super().__init__()
        self.seen = []
        self.deadly = deadly

    def on_train_batch_end(self, batch, logs=None):
        if not self.deadly.is_alive() and not self.seen:
            self.deadly.start()
        time.sleep(0.003)

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(-self.model.counts.numpy().astype(int))


def _loop(model, optimizer, data, epochs):
    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(model(ids))
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    epochs.set_model(model)
    for epoch in range(EPOCHS):
        for batch, (ids, _) in enumerate(data):
            step(ids)
            epochs.on_train_batch_end(batch)
        epochs.on_epoch_end(epoch)


def main():
    """Trains, and prints the least and the most counts of each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("loop", "fit", "batches"))
    parser.add_argument("uneven", choices=("pad", "drop"))
    parser.add_argument("deaths", nargs="?", default="")
    options = parser.parse_args()
    kr.init()
    was = kr.rank()
    deadly = deaths.timer(options.deaths, was)
    model = Counting()
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(1.0), op=kr.Sum, elastic=True
    )
    uneven = options.uneven
    if options.how == "batches":
        data = kr.data.batches(Batches(), shuffle=True, uneven=uneven)
    else:
        arrays = np.arange(SAMPLES), np.zeros(SAMPLES, np.float32)
        data = kr.data.batches(arrays, BATCH, shuffle=True, uneven=uneven)
    epochs = Epochs(deadly)
    if options.how == "loop":
        _loop(model, optimizer, data, epochs)
    else:
        model.compile(
            optimizer,
            loss=lambda y, sums: tf.reduce_sum(sums),
            jit_compile=False,
        )
        model.fit(
            data,
            epochs=EPOCHS,
            verbose=0,
            callbacks=[
                kr.callbacks.BroadcastGlobalVariablesCallback(0),
                epochs,
            ],
        )
    ends = " ".join(f"{each.min()}..{each.max()}" for each in epochs.seen)
    total = int(epochs.seen[-1].sum())
    print(
        f"was {was}: rank {kr.rank()} of {kr.size()}, {ends}, {total} in all",
        flush=True,
    )
    kr.shutdown()


if __name__ == "__main__":
    main()
