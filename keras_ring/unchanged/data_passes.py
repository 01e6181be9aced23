"""The pass over data that the caller runs in, of `fit` or `evaluate`.

Keras makes the iterator over batches, the step and the results of a pass in
different functions, which find the pass here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from keras_ring._typing import Model, Structure
from keras_ring.keras import scope
from keras_ring.keras.agreement import data_parts
from keras_ring.keras.fit import one_writer
from keras_ring.keras.optimizer.mixin import distributed_settings

if TYPE_CHECKING:
    from keras_ring.unchanged.batch_digests import Digests


class Pass:
    """One call of `fit` or `evaluate`.

    Args:
        model: A `keras.Model`.
        is_training: Boolean, whether it is `fit`.
    """

    def __init__(self, model: Model, *, is_training: bool) -> None:
        self.model = model
        self.is_training = is_training
        # Whether the ranks have parts of the data, or each has all of them.
        self.is_split = False
        # A text about the data that are read, for display.
        self.reads = ""
        # Digests of the batches that were read, to be compared.
        self.digests: Digests | None = None
        # Whether a rank trains on batches of its own, not on parts.
        self.has_own_batches = False
        # Whether the iterator over the training data was made, so that later
        # ones are for validation.
        self.has_data = False
        # Whether a callback observes each batch that is evaluated.
        self.is_watched = False


_PassOrNone = TypeVar("_PassOrNone", Pass, None)


def current() -> Pass | None:
    """Returns the pass of all ranks that the caller runs in, or `None`."""
    # A callback that runs on one rank is in none, though `fit` calls it.
    return None if one_writer.is_writing_alone() else scope.current().data_pass


@contextlib.contextmanager
def running(found: _PassOrNone) -> Iterator[_PassOrNone]:
    """Sets the current pass in the context, `None` for none."""
    with scope.inside(data_pass=found):
        yield found


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Marks the code in the context as run by this rank on its own."""
    with scope.inside(is_alone=True):
        with running(None):
            yield


def is_alone() -> bool:
    """Returns whether the caller runs on this rank on its own."""
    return scope.current().is_alone or one_writer.is_writing_alone()


def is_of_all_ranks(model: Model, data: Structure) -> bool:
    """Returns whether all ranks make a pass of a model together.

    They do not if this rank runs on its own, nor if the program itself has made
    a distributed optimizer or has split its data.

    Args:
        model: A `keras.Model`.
        data: The data that the pass is to read.
    """
    if is_alone() or data_parts.find(data) is not None:
        return False
    settings = distributed_settings(getattr(model, "optimizer", None))
    return settings is None or settings.whole_batch
