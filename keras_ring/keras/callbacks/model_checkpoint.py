"""Saves the model while it trains."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_ring._typing import Logs, Model
from keras_ring.core import generations, topology
from keras_ring.errors import CheckpointError
from keras_ring.keras.checkpoint import saved_files, training_state
from keras_ring.keras.checkpoint.rank_zero import on_rank_zero
from keras_ring.keras.fit import skipped_batches
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model import model_state
from keras_ring.keras.model.moving_statistics import averaged_statistics


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the model or its weights, as Keras' callback of this name does.

    Rank 0 decides and writes, and the others wait, so that a failed write is
    an error on all ranks. A file is renamed to its final name after it has
    reached the disk: whenever the program ends, the old file or the new one is
    there, and whole. The file is a plain Keras file: it opens without
    keras_ring.
    Beside it is a manifest, `best.keras.manifest.json` for `best.keras`, with
    its size and SHA-256, which `kr.load_model` compares.

    The arguments are those of `keras.callbacks.ModelCheckpoint` and the ones
    below. All ranks must have this callback, with the same arguments. With
    `save_best_only`, use `MetricAverageCallback` as well; otherwise rank 0
    decides by the metrics of its own data.

    Args:
        filepath: Path of the file, as in Keras.
        *args: As in Keras.
        keep: Integer, the number of files to keep if the file name in
            `filepath` has a placeholder for the epoch, the batch or a metric.
            Defaults to `None`, which keeps all.
        average_statistics: Boolean, whether moving statistics of
            `keras.layers.BatchNormalization` are saved as those of all ranks
            together, as `kr.checkpoint.save` does it. Defaults to `False`,
            which saves those of rank 0.
        **kwargs: As in Keras.

    Example:
    ```python
    callbacks = [
        kr.callbacks.MetricAverageCallback(),
        kr.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        kr.callbacks.ModelCheckpoint("epoch-{epoch:03d}.keras", keep=3),
    ]
    ```
    """

    # This class decides itself which rank writes.
    _keras_ring_every_rank = True

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        *args: Any,
        keep: int | None = None,
        average_statistics: bool = False,
        **kwargs: Any,
    ) -> None:
        if keep is not None and keep < 1:
            raise ValueError(
                f"`keep` must be at least 1. Received: keep={keep}"
            )
        if keep is not None and "{" in str(Path(filepath).parent):
            raise ValueError(
                "With `keep`, what is different in each path must be in the "
                "name of the file, so that all files are in one folder. "
                f"Received: filepath={os.fspath(filepath)!r}, keep={keep}"
            )
        super().__init__(filepath, *args, **kwargs)
        self.keep = keep
        self.average_statistics = average_statistics

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins to count batches as ranks do that have come in since then."""
        super().on_train_begin(logs)
        if generations.num_admissions():
            self._batches_seen_since_last_saving = 0
            self._last_batch_seen = 0

    def _save_model(
        self, epoch: int, batch: int | None, logs: Logs | None
    ) -> None:
        """Saves the model if it is to be saved. Keras calls this."""
        if skipped_batches.is_skipping(self.model):
            # The previous run has saved the model with these weights.
            return
        logs = logs or {}

        def write(path: Path) -> None:
            description = {
                "template": Path(self.filepath).name,
                "at": _moment(epoch, batch),
                "ranks": topology.size(),
                "versions": training_state.versions(),
            }
            try:
                save_atomically(
                    self.model,
                    path,
                    weights_only=self.save_weights_only,
                    description=description,
                )
            except Exception as error:
                # The path with values in place of `{epoch}` and the like.
                raise CheckpointError(
                    f"{path}: {type(error).__name__}: {error}"
                ) from error
            if self.keep is not None:
                saved_files.prune(path, self.keep)

        def save() -> Any:
            compat.save_if_due(self, epoch, batch, logs, write)
            return self.best

        with averaged_statistics(self.model, self.average_statistics):
            self.best = on_rank_zero(
                f"save the model to {self.filepath}", save, "model_checkpoint"
            )


def _moment(epoch: int, batch: int | None) -> list[int]:
    """Returns the numbers of complete epochs and of batches in the next."""
    return [epoch + 1, 0] if batch is None else [epoch, batch + 1]


def save_atomically(
    model: Model,
    path: Path,
    *,
    weights_only: bool,
    description: Mapping[str, Any],
) -> None:
    """Saves a model to a file, by a rename: it is never there in part.

    Args:
        model: A `keras.Model`.
        path: Path of the file, with a suffix that Keras knows.
        weights_only: Boolean, whether to call `save_weights`.
        description: Entries of the manifest besides size and SHA-256.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keras chooses the format by the suffix, so the name gets a prefix. The
    # next save overwrites the file that a killed program has left.
    part = path.with_name(f".writing-{path.name}")
    try:
        saved_files.require_room(part, model_state.num_bytes(model))
        with _said_to_be_built(model):
            if weights_only:
                model.save_weights(part, overwrite=True)
            else:
                model.save(part, overwrite=True)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        saved_files.replace(path, part, description)
    finally:
        # On a read-only disk, the save itself has raised an error already.
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _said_to_be_built(model: Model) -> Iterator[None]:
    """Lets Keras save a model that is trained in parts and never called."""
    built = model.built
    model.built = built or compat.is_built(model)
    try:
        yield
    finally:
        model.built = built
