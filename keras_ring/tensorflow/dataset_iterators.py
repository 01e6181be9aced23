"""Reads batches ahead of a training function of TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Dataset, Structure
from keras_ring.core import telemetry


def is_iterator(value: object) -> bool:
    """Returns whether an object is an iterator over a `tf.data.Dataset`."""
    return isinstance(value, tf.data.Iterator)


def next_of(iterator: tf.data.Iterator, count: int) -> list[Structure]:
    """Returns the next batches, which the caller is still to train on.

    Args:
        iterator: A `tf.data.Iterator`.
        count: Integer, the number of batches. There are fewer at the end.
    """
    batches: list[Structure] = []
    with telemetry.uncounted():
        for _ in range(count):
            batch = next(iterator, None)
            if batch is None:
                break
            batches.append(batch)
    return batches


def iterator_of(
    batches: list[Structure], iterator: tf.data.Iterator
) -> tf.data.Iterator:
    """Returns an iterator over batches that a traced function accepts.

    Args:
        batches: List of batches, at least one.
        iterator: The iterator for which the function was traced.
    """
    dataset = _as_traced(batches[0], iterator)
    for batch in batches[1:]:
        dataset = dataset.concatenate(_as_traced(batch, iterator))
    return iter(dataset)


def repeated(batch: Structure, iterator: tf.data.Iterator) -> tf.data.Iterator:
    """Returns an iterator that yields one batch again and again.

    Args:
        batch: The batch.
        iterator: The iterator for which the training function was traced.
    """
    return iter(_as_traced(batch, iterator).repeat())


def _as_traced(batch: Structure, iterator: tf.data.Iterator) -> Dataset:
    # With the element spec of `iterator`, whatever the size of this batch.
    one = tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(batch))
    return tf.data.experimental.from_variant(one, iterator.element_spec)
