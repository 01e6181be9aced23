"""Saves the model while it trains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from keras_ring._checkpoint_files import sync_directory
from keras_ring._compat import keras, own
from keras_ring._rank_zero import on_rank_zero


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the model or its weights, as Keras' callback of this name does.

    Rank 0 decides and writes, and the others wait, so that what it cannot
    write is an error on all ranks. A file appears by a rename after it has
    reached the disk: whenever the program ends, it is the old one or the new
    one, and whole. The file is plain Keras': it opens without keras_ring.

    All arguments are those of `keras.callbacks.ModelCheckpoint`. All ranks
    must have this callback, with the same arguments. With `save_best_only`,
    use `MetricAverageCallback` as well, or rank 0 judges by its own data.

    Example:
    ```python
    callbacks = [
        kr.callbacks.MetricAverageCallback(),
        kr.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
    ]
    ```
    """

    def _save_model(
        self, epoch: int, batch: int | None, logs: dict[str, Any] | None
    ) -> None:
        """Saves the model if it is to be saved. Keras calls this."""
        logs = logs or {}

        def save() -> Any:
            own.save_if_due(self, epoch, batch, logs, self._write)
            return self.best

        self.best = on_rank_zero(
            f"save the model to {self.filepath}", save, "model_checkpoint"
        )

    def _write(self, path: Path) -> None:
        save_atomically(self.model, path, weights_only=self.save_weights_only)


def save_atomically(model: Any, path: Path, *, weights_only: bool) -> None:
    """Saves a model to a file that is the old one or the new one, and whole.

    Args:
        model: A `keras.Model`.
        path: Where to, with a suffix that Keras knows.
        weights_only: Boolean, whether to call `save_weights`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keras goes by the suffix, so the name is changed in front. The next save
    # overwrites what a program that was killed has left.
    part = path.with_name(f".writing-{path.name}")
    try:
        if weights_only:
            model.save_weights(part, overwrite=True)
        else:
            model.save(part, overwrite=True)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_directory(path.parent)
