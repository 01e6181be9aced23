"""Detects ranks that train different models."""

from __future__ import annotations

from keras_ring._typing import Logs
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.lanes import keras
from keras_ring.keras.model.consistency import require_consistent


class ConsistencyCheck(keras.callbacks.Callback):  # type: ignore[misc]
    """Compares the weights of all ranks from time to time.

    The weights are equal to the bit as long as every rank starts from the same
    ones and makes the same updates. The ranks exchange a fingerprint of 16
    bytes. If it differs, that is an error on all ranks, which names the first
    weight that differs, and the ranks.

    Weights that a layer sets for itself are not compared, such as the moving
    statistics of `keras.layers.BatchNormalization`, which differ between
    ranks. Those of `kr.SyncBatchNormalization` are compared.

    `BroadcastGlobalVariablesCallback` does this at the ends of epochs. Use
    this callback to detect a difference earlier.

    Args:
        every: `"epoch"`, or an integer, the number of batches between two
            checks. Defaults to `"epoch"`.
        process_set: A `kr.ProcessSet`, whose ranks train the model. Defaults
            to all ranks.

    Example:
    ```python
    model.fit(x, y, callbacks=[kr.callbacks.ConsistencyCheck(every=100)])
    ```
    """

    # Ranks that come in compare when the others do.
    shared_state = ("_checked",)

    def __init__(
        self,
        every: str | int = "epoch",
        *,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__()
        if every != "epoch" and not (isinstance(every, int) and every >= 1):
            raise ValueError(
                '`every` must be "epoch" or an integer above 0. Received: '
                f"every={every!r}"
            )
        self.every = every
        self.process_set = process_set
        self._epoch = 0
        self._checked = -1  # the batch before which weights were last compared

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes the epoch."""
        self._epoch = epoch
        self._checked = -1

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Compares the weights if a check is due."""
        if isinstance(self.every, int) and batch - self._checked >= self.every:
            self._checked = batch
            when = f"after batch {batch + 1} of epoch {self._epoch + 1}"
            require_consistent(self.model, when, self.process_set)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compares the weights, whatever `every` is."""
        require_consistent(
            self.model, f"after epoch {epoch + 1}", self.process_set
        )
