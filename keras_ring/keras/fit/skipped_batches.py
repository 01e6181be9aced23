"""Marks batches that a resumed `fit` reads without training on them.

For these batches, callbacks do not repeat what the interrupted run did. The
mark is on the function that replaces the training function meanwhile, so it
goes with that function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Model, Structure

_MARK = "_keras_ring_passes_over"


def skipping(
    step: Callable[[Iterator[Structure]], Any],
) -> Callable[[Iterator[Structure]], Any]:
    """Marks a function that reads batches without training; returns it."""
    setattr(step, _MARK, True)
    return step


def is_skipping(model: Model) -> bool:
    """Returns whether `fit` only reads the present batch of a model."""
    return hasattr(getattr(model, "train_function", None), _MARK)
