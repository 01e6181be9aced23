"""Runs a callback of Keras that writes files on every rank."""

from __future__ import annotations

from keras_ring._typing import Callback
from keras_ring.keras.fit import one_writer
from keras_ring.keras.lanes import keras


def EveryRank(callback: Callback) -> Callback:
    """Makes a callback of Keras write or show its output on every rank.

    Without this, `CSVLogger`, `TensorBoard`, `RemoteMonitor`,
    `ModelCheckpoint`, `BackupAndRestore` and the progress bar of Keras write
    or show their output on one rank only: the lowest of those that train the
    model. Use this function if each rank has a file of its own. Callbacks of
    your own run on every rank anyway.

    Args:
        callback: A `keras.callbacks.Callback`, which is changed in place.

    Returns:
        `callback`.

    Raises:
        ValueError: If `callback` is not a callback.

    Example:
    ```python
    log = keras.callbacks.CSVLogger(f"log-{kr.rank()}.csv")
    model.fit(x, y, callbacks=[kr.callbacks.EveryRank(log)])
    ```
    """
    if not isinstance(callback, keras.callbacks.Callback):
        raise ValueError(
            "`callback` must be a `keras.callbacks.Callback`. Received: "
            f"{callback!r}"
        )
    return one_writer.on_every_rank(callback)
