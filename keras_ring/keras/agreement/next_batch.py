"""Replaces the training function of a model for its next call.

Keras tells callbacks that a batch is trained on, but does not pass the batch.
So batches are read where they are trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from keras_ring._typing import Logs, Model, Structure
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run


def on_next_call(
    model: Model, around: Callable[[Run, Iterator[Structure]], Logs]
) -> None:
    """Makes the next call of `model.train_function` call a function instead.

    The model has its own function back when `around` is called. If this is
    called several times, the last function wraps the others.

    Args:
        model: A `keras.Model` in `fit`.
        around: Callable that takes a function that trains on the batches of an
            iterator and the iterator, and returns the logs of the step.
    """
    train = model.train_function

    def once(run: Run, iterator: Iterator[Structure]) -> Logs:
        model.train_function = train
        return around(run, iterator)

    model.train_function = backend.replaced_step(model, train, once)
