"""What an optimizer is whose losses are scaled, in Keras 2 and in Keras 3."""

from __future__ import annotations

from keras_ring._typing import Optimizer


def inner_optimizer(optimizer: Optimizer) -> Optimizer:
    """Returns what a `LossScaleOptimizer` is around; others as they are."""
    return getattr(optimizer, "inner_optimizer", optimizer)
