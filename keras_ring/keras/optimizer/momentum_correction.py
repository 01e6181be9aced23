"""Scales the momentum of an optimizer with its learning rate."""

from __future__ import annotations

from keras_ring._typing import Optimizer
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat


class MomentumCorrection:
    """Multiplies the momentum of an optimizer by a factor, before a step.

    Args:
        optimizer: The optimizer, without a `LossScaleOptimizer` around it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._traced = None
        if (
            backend.traces_steps()
            and backend.captures_variables()
            and not backend.is_graph_program()
        ):
            # Only steps of TensorFlow are like this.
            from keras_ring.keras.optimizer import traced_momentum

            self._traced = traced_momentum.TracedMomentum(optimizer)

    def scale(self, factor: float) -> None:
        """Multiplies all momentum by `factor` before the next update."""
        if self._traced is not None:
            self._traced.scale(factor)
            return
        for momentum in compat.momentums(self._optimizer):
            compat.assign(momentum, compat.as_numpy(momentum) * factor)
