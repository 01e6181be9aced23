"""Losses and metrics of all ranks after each batch, for callbacks that look.

Keras hands a callback what the metrics of its own rank are after a batch. One
of the program's own may act by that, or write it down. Where there is such a
one, the state of all ranks is combined for it after each batch, which costs a
small reduction, and then given back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._auto import results
from keras_ring._keras import compat, keras
from keras_ring._typing import Logs


class BatchLogs(keras.callbacks.Callback):  # type: ignore[misc]
    """Puts results of all ranks where later callbacks look for them."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Replaces what is in `logs`."""
        if not logs:
            return
        model = self.model
        variables = compat.metrics_variables(model)
        kept = [(each, np.array(compat.as_numpy(each))) for each in variables]
        try:
            found = results.combined(
                model, logs, "auto/fit/batch", at_end=False
            )
        finally:
            for variable, value in kept:
                compat.assign(variable, value)
        logs.update(tf.nest.map_structure(_as_number, found))


def _as_number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
