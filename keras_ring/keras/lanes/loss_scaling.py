"""The optimizer inside of a `LossScaleOptimizer`, of Keras 2 and Keras 3."""

from __future__ import annotations

from keras_ring._typing import Optimizer


def inner_optimizer(optimizer: Optimizer) -> Optimizer:
    """Returns the optimizer that a `LossScaleOptimizer` wraps, or itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)
