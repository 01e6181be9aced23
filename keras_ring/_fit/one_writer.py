"""Has callbacks that write files or show something do so on one rank.

`keras.callbacks.ModelCheckpoint`, `CSVLogger`, `TensorBoard` and the progress
bar are in programs that were made for one process. On several ranks that train
one model they would write the same files at the same time. What writes is
left out on all ranks but the lowest of those that train the model; what the
callback reads or decides for the training is not. Nothing is sent.

Nor is anything written again after batches that a resumed training passes over.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from keras_ring._fit import skipped_batches
from keras_ring._keras import compat, keras
from keras_ring._keras.patching import patch_once
from keras_ring._runtime import sight, topology
from keras_ring._training import local_updates
from keras_ring._training.trained_by import trained_by
from keras_ring._typing import Callback, Logs, Model

# The class of Keras -> its methods that write, or `None` for all that it
# defines.
_WRITERS: dict[str, tuple[str, ...] | None] = {
    "CSVLogger": None,
    "TensorBoard": None,
    "RemoteMonitor": None,
    "ProgbarLogger": None,
    "OrbaxCheckpoint": None,
    "ModelCheckpoint": ("_save_model",),
    "BackupAndRestore": compat.BACKUP_WRITES,
}
_BETTER = {
    "ModelCheckpoint": "; `kr.callbacks.ModelCheckpoint` has the others wait "
    "for the file, and writes it atomically",
    "BackupAndRestore": "; `kr.callbacks.BackupAndRestore` has all ranks go "
    "on at the same step",
}
# What the run before has written after the same batches.
_AFTER_BATCHES = ("_save_model", "on_train_batch_begin", "on_train_batch_end")
# Those that write the model.
_SAVES = ("_save_model", *compat.BACKUP_WRITES)
_PURPOSE = "one rank writes"
_RESUMES = "nothing is written again for batches that are passed over"
_SILENT = "_keras_ring_silent"
_OTHERS_SILENT = "_keras_ring_others_silent"
_EVERY_RANK = "_keras_ring_every_rank"

_writing_alone: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "keras_ring_writing_alone", default=False
)


def on_every_rank(callback: Callback) -> Callback:
    """Marks a callback, or a class of callbacks, that all ranks are to run."""
    setattr(callback, _EVERY_RANK, True)
    return callback


def is_on_every_rank(callback: Callback) -> bool:
    """Whether all ranks are to run a callback."""
    return bool(getattr(callback, _EVERY_RANK, False))


def writes(callback: Callback) -> bool:
    """Whether a callback is one that writes files, for all on one rank."""
    return any(
        isinstance(callback, getattr(keras.callbacks, name, ()))
        for name in _WRITERS
        if name != "ProgbarLogger"
    )


def is_silent(callback: Callback) -> bool:
    """Whether a callback of `fit` is left to another rank."""
    return bool(getattr(callback, _SILENT, False))


def is_writing_alone() -> bool:
    """Whether a callback writes here that other ranks leave to this one."""
    return _writing_alone.get()


@contextlib.contextmanager
def writing_alone() -> Iterator[None]:
    """Says that other ranks do not do what is done inside."""
    token = _writing_alone.set(True)
    try:
        yield
    finally:
        _writing_alone.reset(token)


def install() -> None:
    """Changes the classes of Keras. Once is enough."""
    for name, methods in _WRITERS.items():
        writer = getattr(keras.callbacks, name, None)
        if writer is None:
            continue
        own_methods = dict(vars(writer))
        for method in methods or [m for m in own_methods if m[:3] == "on_"]:
            patch_once(writer, method, _left_out, _PURPOSE)
            if method in _AFTER_BATCHES and name != "ProgbarLogger":
                patch_once(writer, method, _not_again, _RESUMES)
        decides = functools.partial(
            _decides, name=name, writes="set_model" in own_methods
        )
        patch_once(writer, "set_model", decides, _PURPOSE)


def _left_out(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def write_if_meant(self: Callback, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, _SILENT, False):
            if write.__name__ not in _SAVES:
                return write(self, *args, **kwargs)
            alone = getattr(self, _OTHERS_SILENT, False)
            with (
                sight.activity("checkpoint", write.__name__.strip("_")),
                writing_alone() if alone else contextlib.nullcontext(),
            ):
                return write(self, *args, **kwargs)
        if isinstance(self, keras.callbacks.ModelCheckpoint):
            _judge_only(self, *args, **kwargs)
        return None

    return write_if_meant


def _not_again(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def write_if_new(self: Callback, *args: Any, **kwargs: Any) -> Any:
        if skipped_batches.is_skipping(self.model):
            return None
        return write(self, *args, **kwargs)

    return write_if_new


def _judge_only(
    checkpoint: Callback,
    epoch: int,
    batch: int | None,
    logs: Logs | None,
) -> None:
    """Has a `ModelCheckpoint` note which epoch is the best, and no more."""
    setattr(checkpoint, _SILENT, False)
    verbose, checkpoint.verbose = checkpoint.verbose, 0
    try:
        compat.save_if_due(
            checkpoint, epoch, batch, logs or {}, lambda path: None
        )
    finally:
        checkpoint.verbose = verbose
        setattr(checkpoint, _SILENT, True)


def _decides(
    set_model: Callable[..., Any], name: str, writes: bool
) -> Callable[..., Any]:
    """Makes the method that Keras calls before any other.

    Args:
        set_model: The method of the class.
        name: Name of the class.
        writes: Boolean, whether `set_model` writes too.
    """

    @functools.wraps(set_model)
    def decide(self: Callback, model: Model) -> Any:
        # Here, and not where it writes: that may be in another thread.
        writer = _writer_of(self, model)
        silent = writer not in (None, topology.rank())
        setattr(self, _SILENT, silent)
        setattr(self, _OTHERS_SILENT, writer is not None and not silent)
        if not silent:
            return set_model(self, model)
        if name != "ProgbarLogger":
            ranks = trained_by(model).ranks
            _announce(name, ranks[0], ranks[1], len(ranks))
        if writes:
            return keras.callbacks.Callback.set_model(self, model)
        return set_model(self, model)

    return decide


def _writer_of(callback: Callback, model: Model) -> int | None:
    """Returns which rank writes for all, `None` if each does for itself."""
    if not topology.is_initialized() or topology.size() == 1:
        return None
    if getattr(callback, _EVERY_RANK, False):
        return None
    if local_updates.are_allowed():
        # Each rank trains a model of its own.
        return None
    ranks = trained_by(model).ranks
    return ranks[0] if topology.rank() in ranks else None


def announce_by(announce: Callable[[str, int, int, int], None]) -> None:
    """Has a function say what is left to one rank.

    Args:
        announce: Called on the other ranks with the name of the class, the
            rank that writes, the next one, and how many there are.
    """
    global _announce
    _announce = announce


@functools.cache
def _say(name: str, first: int, second: int, count: int) -> None:
    """Says, once, on the second of the ranks, what is left to the first."""
    if topology.rank() == second:
        logging.warning(
            "keras_ring: rank %d alone writes what `%s` writes, for %d ranks%s."
            " `kr.callbacks.EveryRank(callback)` has each rank write its own.",
            first,
            name,
            count,
            _BETTER.get(name, ""),
        )


_announce: Callable[[str, int, int, int], None] = _say
