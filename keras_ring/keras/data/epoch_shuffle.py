"""An order of elements that depends on the number of the epoch."""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Dataset, Tensor
from keras_ring.keras.data import epochs
from keras_ring.tensorflow.autograph import do_not_convert


def shuffled_by_epoch(dataset: Dataset, buffer_size: int, seed: int) -> Dataset:
    """Shuffles anew in each epoch, by `seed` and the number of the epoch.

    `Dataset.shuffle` derives the order of an epoch from the epoch before, so
    it cannot start at a later epoch.
    """
    counter = _EpochVariable()
    spec = dataset.element_spec

    @do_not_convert
    def shuffled(_: Tensor) -> Dataset:
        # Called when an epoch begins. This uses the op, not the method, which
        # mixes the seed with the global seed of TensorFlow.
        variant = tf.raw_ops.ShuffleDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            buffer_size=tf.constant(buffer_size, tf.int64),
            seed=tf.constant(seed, tf.int64),
            # Both 0 would mean a random seed.
            seed2=counter.next() + 1,
            output_types=dataset._flat_types,
            output_shapes=dataset._flat_shapes,
            reshuffle_each_iteration=False,
        )
        return tf.data.experimental.from_variant(variant, spec)

    result = tf.data.Dataset.from_tensors(0).flat_map(shuffled)
    cardinality = int(dataset.cardinality())
    if cardinality != tf.data.UNKNOWN_CARDINALITY:
        result = result.apply(
            tf.data.experimental.assert_cardinality(cardinality)
        )
    # The variable must live as long as the dataset that reads it.
    result._keras_ring_epochs = counter
    return result


class _EpochVariable:
    """Counts epochs in a variable that `tf.data` can read."""

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            self._next = tf.Variable(0, dtype=tf.int64, trainable=False)
        epochs.register(self)

    def next(self) -> Tensor:
        """Returns the number of the epoch that begins, as a tensor."""
        return self._next.assign_add(1) - 1

    def set_next_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that reads the data next."""
        self._next.assign(epoch)
