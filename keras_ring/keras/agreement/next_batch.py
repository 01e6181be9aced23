"""Replaces the training function of a model for its next call.

Keras tells callbacks that a batch is trained on, but does not pass the batch.
So batches are read where they are trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf

from keras_ring._typing import Dataset, Model, Structure
from keras_ring.core import telemetry

TrainFunction: TypeAlias = Callable[[Iterator[Structure]], Any]


def on_next_call(
    model: Model, around: Callable[[TrainFunction, Iterator[Structure]], Any]
) -> None:
    """Makes the next call of `model.train_function` call a function instead.

    The model has its own function back when `around` is called. If this is
    called several times, the last function wraps the others.

    Args:
        model: A `keras.Model` in `fit`.
        around: Callable that takes the function that it replaces and the
            iterator over batches, and returns the logs of the step.
    """
    train = model.train_function

    def once(iterator: Iterator[Structure]) -> Any:
        model.train_function = train
        return around(train, iterator)

    model.train_function = once


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

    def as_traced(batch: Structure) -> Dataset:
        # With the element spec of `iterator`, whatever the size of this batch.
        one = tf.data.experimental.to_variant(
            tf.data.Dataset.from_tensors(batch)
        )
        return tf.data.experimental.from_variant(one, iterator.element_spec)

    dataset = as_traced(batches[0])
    for batch in batches[1:]:
        dataset = dataset.concatenate(as_traced(batch))
    return iter(dataset)
