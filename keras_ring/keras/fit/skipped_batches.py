"""Marks batches that a resumed `fit` reads without training on them.

For these batches, callbacks do not repeat what the interrupted run did. The
mark is on the function that replaces the training function meanwhile, so it
goes with that function.
"""

from __future__ import annotations

from typing import Any

from keras_ring._typing import Model

_MARK = "_keras_ring_passes_over"


def skipping(step: Any) -> Any:
    """Marks a training function that only reads batches; returns it."""
    setattr(step, _MARK, True)
    return step


def is_skipping(model: Model) -> bool:
    """Returns whether `fit` only reads the present batch of a model."""
    return hasattr(getattr(model, "train_function", None), _MARK)
