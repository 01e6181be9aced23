"""Which pass over data runs here: of `fit`, `evaluate` or `predict`.

Keras makes the iterator over the batches, the step and the results of a pass
in different places, which find here what they are for.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

from keras_ring._agreement import data_parts
from keras_ring._auto.same_data import Digests
from keras_ring._fit import one_writer
from keras_ring._training.mixin import distributed_settings
from keras_ring._typing import Model, Structure


class Pass:
    """One call of `fit` or `evaluate`.

    Args:
        model: A `keras.Model`.
        is_training: Boolean, whether it is `fit`.
    """

    def __init__(self, model: Model, *, is_training: bool) -> None:
        self.model = model
        self.is_training = is_training
        # Whether the ranks have parts of the data, or all of them all.
        self.is_split = False
        # What is read, for whoever shows it.
        self.reads = ""
        # Of the batches that were read, to be compared.
        self.digests: Digests | None = None
        # Whether a rank trains on batches of its own, not on parts.
        self.has_own_batches = False
        # Whether the data to train on are known; what comes then is to
        # validate.
        self.has_data = False
        # Whether a callback looks at each batch that is evaluated.
        self.is_watched = False


_PassOrNone = TypeVar("_PassOrNone", Pass, None)

_current: contextvars.ContextVar[Pass | None] = contextvars.ContextVar(
    "keras_ring_pass", default=None
)


def current() -> Pass | None:
    """Returns the pass that the caller runs in, if it is one of all ranks."""
    # What a callback calls on one rank is not, though it is called in `fit`.
    return None if one_writer.is_writing_alone() else _current.get()


@contextlib.contextmanager
def running(found: _PassOrNone) -> Iterator[_PassOrNone]:
    """Has what runs inside belong to a pass, or to none."""
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


_alone: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "keras_ring_alone", default=False
)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Has what runs inside be this rank's own."""
    token = _alone.set(True)
    try:
        with running(None):
            yield
    finally:
        _alone.reset(token)


def is_alone() -> bool:
    """Whether what runs here is this rank's own."""
    return _alone.get() or one_writer.is_writing_alone()


def is_of_all_ranks(model: Model, data: Structure) -> bool:
    """Whether a pass of a model is one that all ranks make together.

    It is not where one rank does something alone, nor where the program itself
    has made the optimizer one of all ranks, or has divided its data.

    Args:
        model: A `keras.Model`.
        data: What it is to read.
    """
    if is_alone() or data_parts.find(data) is not None:
        return False
    settings = distributed_settings(getattr(model, "optimizer", None))
    return settings is None or settings.whole_batch
