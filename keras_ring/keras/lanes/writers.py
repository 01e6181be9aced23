"""The callbacks of Keras that write files or a line, and their methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from keras_ring._typing import Callback
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.lanes.binding import HookPoint
from keras_ring.keras.lanes.missed_calls import MissedCalls

# Writes a line, and no file.
BAR = "ProgbarLogger"
# By the name of a class of Keras: its methods that write, or `None` for all
# hooks that it defines.
_WRITERS: dict[str, tuple[str, ...] | None] = {
    "CSVLogger": None,
    "TensorBoard": None,
    "RemoteMonitor": None,
    BAR: None,
    "OrbaxCheckpoint": None,
    "ModelCheckpoint": ("_save_model",),
    "BackupAndRestore": compat.BACKUP_WRITES,
}


def writes_files(callback: Callback) -> bool:
    """Returns whether a callback is one of Keras that writes files."""
    return any(
        isinstance(callback, writer)
        for writer, _ in _classes()
        if writer.__name__ != BAR
    )


def calls() -> Iterator[HookPoint]:
    """Yields the methods that write."""
    for writer, methods in _classes():
        own = [each for each in vars(writer) if each.startswith("on_")]
        for name in methods or own:
            yield HookPoint(writer, name)


def sets() -> Iterator[HookPoint]:
    """Yields the `set_model` of each class, which Keras calls first."""
    for writer, _ in _classes():
        yield HookPoint(writer, "set_model")


def begin_again(callback: Callback, begin: Callable[[], None]) -> None:
    """Makes the call of `on_train_begin` of a training that goes on.

    The callback goes on with the files that it, or another process, has
    written until now.

    Args:
        callback: A callback of one of these classes.
        begin: Function that makes the call.
    """
    if isinstance(callback, keras.callbacks.CSVLogger):
        # Opened for writing, the file would lose its lines.
        append, callback.append = callback.append, True
        begin()
        callback.append = append
    elif isinstance(callback, keras.callbacks.TensorBoard):
        batches = callback._global_train_batch
        begin()
        callback._global_train_batch = batches
    else:
        begin()


def go_on(callback: Callback, missed: MissedCalls) -> None:
    """Makes the calls that a callback has missed.

    It goes on with the files that another process has written until now.

    Args:
        callback: A callback of one of these classes.
        missed: Its `MissedCalls`.
    """
    if isinstance(callback, keras.callbacks.CSVLogger):
        begin_again(callback, functools.partial(_make, missed))
    elif isinstance(callback, keras.callbacks.TensorBoard):
        batches = missed.ended("on_train_batch_begin")
        callback._global_test_batch += missed.ended("on_test_batch_begin")
        for name, call in missed.take():
            call()
            if name == "on_train_begin":
                callback._global_train_batch = batches
    else:
        _make(missed)


def _make(missed: MissedCalls) -> None:
    for _, call in missed.take():
        call()


def _classes() -> Iterator[tuple[type, tuple[str, ...] | None]]:
    for name, methods in _WRITERS.items():
        writer = getattr(keras.callbacks, name, None)
        if writer is not None:
            yield writer, methods
