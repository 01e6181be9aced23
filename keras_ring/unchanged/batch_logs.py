"""Losses and metrics of all ranks after each batch, for callbacks.

Keras passes the metrics of its own rank to callbacks after a batch. A callback
of the program may act on them or write them down. If there is one, the metrics
of all ranks are combined after each batch, which costs a small reduction, and
then restored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_ring._typing import Logs, Model
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras


class BatchLogs(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that puts results of all ranks in `logs` for later ones.

    Args:
        combined: Function of a model and the logs of its last step. It gives
            the metrics of the model their state of all ranks, and returns the
            results.
    """

    def __init__(self, combined: Callable[[Model, Logs], Logs]) -> None:
        super().__init__()
        self._combined = combined

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Replaces the results of this rank in `logs` by those of all."""
        if not logs:
            return
        # On JAX, this gives the variables their values.
        model = self.model
        variables = compat.metrics_variables(model)
        kept = [(each, np.array(compat.as_numpy(each))) for each in variables]
        try:
            found = self._combined(model, logs)
        finally:
            for variable, value in kept:
                compat.assign(variable, value)
        logs.update(backend.map_structure(_as_number, found))


def _as_number(value: Any) -> Any:
    # A metric of several values is an array.
    is_scalar = getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value
