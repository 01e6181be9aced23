"""Stands in for the training function of a model, for its next call.

Keras tells callbacks of a batch, and does not show it. What is to be known of
one is read where it is trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf

from keras_ring._runtime import sight
from keras_ring._typing import Dataset, Model, Structure

TrainFunction: TypeAlias = Callable[[Iterator[Structure]], Any]


def on_next_call(
    model: Model, around: Callable[[TrainFunction, Iterator[Structure]], Any]
) -> None:
    """Has a function called once in place of `model.train_function`.

    By then the model has its own back. Of several functions, the last one
    stands around the others.

    Args:
        model: A `keras.Model` in `fit`.
        around: Takes what it stands in for, and the iterator over batches that
            this would be called with; returns the logs of the step.
    """
    train = model.train_function

    def once(iterator: Iterator[Structure]) -> Any:
        model.train_function = train
        return around(train, iterator)

    model.train_function = once


def next_of(iterator: tf.data.Iterator, count: int) -> list[Structure]:
    """Returns the next batches, as many as there are; to be trained on yet."""
    batches: list[Structure] = []
    with sight.uncounted():
        for _ in range(count):
            batch = next(iterator, None)
            if batch is None:
                break
            batches.append(batch)
    return batches


def iterator_of(
    batches: list[Structure], iterator: tf.data.Iterator
) -> tf.data.Iterator:
    """Returns an iterator of batches, for what was traced for `iterator`."""

    def as_traced(batch: Structure) -> Dataset:
        # Of the same structure, whatever the size of this batch.
        one = tf.data.experimental.to_variant(
            tf.data.Dataset.from_tensors(batch)
        )
        return tf.data.experimental.from_variant(one, iterator.element_spec)

    dataset = as_traced(batches[0])
    for batch in batches[1:]:
        dataset = dataset.concatenate(as_traced(batch))
    return iter(dataset)
