"""Marks batches that a resumed `fit` reads without training on them.

Callbacks do not repeat then what the interrupted run did after these batches.
The function that stands in for the training step sets the mark, so the mark
goes when that function does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Model, Structure

_MARK = "_keras_ring_passes_over"


def skipping(
    step: Callable[[Iterator[Structure]], Any],
) -> Callable[[Iterator[Structure]], Any]:
    """Marks what reads batches instead of training on them."""
    setattr(step, _MARK, True)
    return step


def is_skipping(model: Model) -> bool:
    """Whether a model is not trained on the present batch."""
    return hasattr(getattr(model, "train_function", None), _MARK)
