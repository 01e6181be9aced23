"""Finds the ranks that train a model together."""

from __future__ import annotations

from keras_ring._typing import Model
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.optimizer.mixin import distributed_settings


def trained_by(model: Model) -> ProcessSet:
    """Returns the process set of the model's optimizer, or all ranks."""
    settings = distributed_settings(getattr(model, "optimizer", None))
    return global_process_set if settings is None else settings.process_set
