"""Callbacks that keep the state of an elastic training up to date in `fit`."""

from __future__ import annotations

from typing import Any

from keras_ring._typing import Logs
from keras_ring.keras.elastic import positions
from keras_ring.keras.elastic.states import State
from keras_ring.keras.lanes import compat, keras


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Calls `state.commit()` after batches and epochs of `fit`.

    It must be the last in the list of callbacks.

    Args:
        state: The `kr.elastic.State` of the training.
        batches_per_commit: Integer, the number of batches after which it is
            called, and others may come in. Defaults to `1`.

    Raises:
        ValueError: If `batches_per_commit` is no positive integer.

    Example:
    ```python
    callbacks = [
        kr.elastic.UpdateEpochStateCallback(state),
        kr.elastic.UpdateBatchStateCallback(state),
        kr.elastic.CommitStateCallback(state, batches_per_commit=100),
    ]
    ```
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(
                "`batches_per_commit` must be at least 1. Received: "
                f"batches_per_commit={batches_per_commit!r}"
            )
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins to count batches."""
        self._batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Commits the state, if it is time for that."""
        if compat.steps_per_execution(self.model) > 1 and (
            positions.are_of_no_loop()
        ):
            # The last steps at once have ended the epoch: `on_epoch_end` does.
            return
        self._batches_remaining -= 1
        if self._batches_remaining == 0:
            self._batches_remaining = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Commits the state."""
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the number of the last batch of the epoch in `state.batch`.

    Args:
        state: A `kr.elastic.State` with an attribute `batch`.

    Example:
    ```python
    state = kr.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [kr.elastic.UpdateBatchStateCallback(state)]
    ```
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Notes the number of the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Begins to count anew."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the number of epochs that are over in `state.epoch`.

    So `fit` is called with `epochs=total - state.epoch`, or with
    `initial_epoch=state.epoch, epochs=total`.

    Args:
        state: A `kr.elastic.State` with an attribute `epoch`.

    Example:
    ```python
    state = kr.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [kr.elastic.UpdateEpochStateCallback(state)]
    ```
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._over_before = 0
        self._first: int | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Notes how many epochs were over before this `fit`."""
        self._over_before = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes the number of the first epoch, by the count of this `fit`."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes that one more epoch is over."""
        first = epoch if self._first is None else self._first
        self.state.epoch = self._over_before + epoch - first + 1
