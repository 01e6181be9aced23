"""The generator of the framework itself, in steps and between them.

Some layers draw from it, and so does what shuffles data. Ranks draw other
numbers in steps, and the same ones between them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.model import seeds

_of_rank: npt.NDArray[np.uint8] | None = None


def share() -> None:
    """Gives all ranks the state of rank 0.

    A training with lines of keras_ring has left them different ones. All ranks
    must call this before anything draws the order of the data.
    """
    seeds.share_generator(0, global_process_set, fold_rank=False)


def begin() -> None:
    """Shares the state of rank 0, and keeps that of this rank for steps.

    All ranks must call this, after `broadcast_model`, by which the generator
    became one of this rank.
    """
    global _of_rank
    _of_rank = backend.random_state()
    share()


@contextlib.contextmanager
def in_step() -> Iterator[None]:
    """Makes the context draw from the generator of this rank."""
    global _of_rank
    between = backend.random_state()
    if _of_rank is None or between is None:
        yield
        return
    backend.set_random_state(_of_rank)
    try:
        yield
    finally:
        _of_rank = backend.random_state()
        backend.set_random_state(between)
