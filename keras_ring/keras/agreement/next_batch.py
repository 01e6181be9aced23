"""Replaces the training function of a model for its next call.

Keras tells callbacks that a batch is trained on, but does not pass the batch.
So batches are read where they are trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from keras_ring._typing import Model, Structure

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
