"""Makes callbacks of Keras write files and show progress on one rank alone.

Programs for one process have `keras.callbacks.ModelCheckpoint`, `CSVLogger`,
`TensorBoard` and the progress bar. Several ranks that train one model would
write the same files at the same time. So the methods that write do nothing on
any rank but the lowest of those that train the model. The callbacks still read
and decide on all ranks. Nothing is sent. If an elastic job loses that rank, the
one that takes its place goes on with what it wrote.

After batches that a resumed training skips, nothing is written again either.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Callback, Logs, Model
from keras_ring.core import notices, telemetry, topology
from keras_ring.keras import scope
from keras_ring.keras.fit import skipped_batches
from keras_ring.keras.lanes import compat, events, hooks, keras, writers
from keras_ring.keras.lanes.missed_calls import MissedCalls
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import local_updates
from keras_ring.keras.optimizer.trained_by import trained_by

_BETTER = {
    "ModelCheckpoint": "; `kr.callbacks.ModelCheckpoint` has the others wait "
    "for the file, and writes it atomically",
    "BackupAndRestore": "; `kr.callbacks.BackupAndRestore` has all ranks go "
    "on at the same step",
}
# Methods whose output the interrupted run has written for the same batches.
_AFTER_BATCHES = ("_save_model", "on_train_batch_begin", "on_train_batch_end")
# Methods that write the model.
_SAVES = ("_save_model", *compat.BACKUP_WRITES)
_PURPOSE = "one rank writes"
_RESUMES = "nothing is written again for batches that are passed over"
_SILENT = "_keras_ring_silent"
_OTHERS_SILENT = "_keras_ring_others_silent"
_MISSED = "_keras_ring_missed"
_EVERY_RANK = "_keras_ring_every_rank"


def on_every_rank(callback: Callback) -> Callback:
    """Marks a callback, or a class of them, to run on all ranks; returns it."""
    setattr(callback, _EVERY_RANK, True)
    return callback


def is_on_every_rank(callback: Callback) -> bool:
    """Returns whether all ranks are to run a callback."""
    return bool(getattr(callback, _EVERY_RANK, False))


def is_silent(callback: Callback) -> bool:
    """Returns whether another rank writes what a callback of `fit` writes.

    If an elastic job has lost that rank, and this one has its place, the
    callback goes on here from now on.
    """
    if not getattr(callback, _SILENT, False):
        return False
    missed = getattr(callback, _MISSED, None)
    if missed is None or topology.rank() > 0:
        return True
    _speaks_from_now_on(callback)
    writers.go_on(callback, missed)
    return False


def _speaks_from_now_on(callback: Callback) -> None:
    setattr(callback, _SILENT, False)
    setattr(callback, _OTHERS_SILENT, not topology.stays_alone())
    setattr(callback, _MISSED, None)
    if not isinstance(callback, keras.callbacks.ProgbarLogger):
        notices.warn(
            f"this rank goes on with what `{type(callback).__name__}` writes: "
            "the job has lost the rank that wrote it"
        )


def is_writing_alone() -> bool:
    """Returns whether the caller runs in a write of this rank alone."""
    return scope.current().is_writing_alone


@contextlib.contextmanager
def writing_alone() -> Iterator[None]:
    """Marks the code in the context as run by this rank alone."""
    with scope.inside(is_writing_alone=True):
        yield


def install() -> None:
    """Changes the classes of Keras. Calling it once is enough."""
    hooks.subscribe(
        events.WRITER_CALLED, _left_out, ring=Ring.JOB, purpose=_PURPOSE
    )
    for point in hooks.points(events.WRITER_CALLED):
        if point.name in _AFTER_BATCHES and point.owner.__name__ != writers.BAR:
            hooks.subscribe(
                events.WRITER_CALLED,
                _not_again,
                ring=Ring.JOB,
                purpose=_RESUMES,
                at=point,
            )
    for point in hooks.points(events.WRITER_SET):
        decides = functools.partial(
            _decides,
            name=point.owner.__name__,
            writes=point.name in vars(point.owner),
        )
        hooks.subscribe(
            events.WRITER_SET,
            decides,
            ring=Ring.JOB,
            purpose=_PURPOSE,
            at=point,
        )


def _left_out(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def write_if_meant(self: Callback, *args: Any, **kwargs: Any) -> Any:
        if not is_silent(self):
            if write.__name__ == "on_train_begin" and scope.current().goes_on:
                call = functools.partial(write, self, *args, **kwargs)
                return writers.begin_again(self, call)
            if write.__name__ not in _SAVES:
                return write(self, *args, **kwargs)
            alone = getattr(self, _OTHERS_SILENT, False)
            with (
                telemetry.activity("checkpoint", write.__name__.strip("_")),
                writing_alone() if alone else contextlib.nullcontext(),
            ):
                return write(self, *args, **kwargs)
        if isinstance(self, keras.callbacks.ModelCheckpoint):
            _judge_only(self, *args, **kwargs)
        elif (missed := getattr(self, _MISSED, None)) is not None:
            call = functools.partial(write, self, *args, **kwargs)
            missed.add(write.__name__, call)
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
    """Makes a `ModelCheckpoint` record the best epoch without writing."""
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
    """Returns a `set_model` that decides which rank writes.

    Keras calls this method before any other.

    Args:
        set_model: The method of the class.
        name: String, the name of the class.
        writes: Boolean, whether `set_model` itself writes.
    """

    @functools.wraps(set_model)
    def decide(self: Callback, model: Model) -> Any:
        # Decided here, because writing may happen in another thread.
        writer = _writer_of(self, model)
        silent = writer not in (None, topology.rank())
        setattr(self, _SILENT, silent)
        setattr(self, _OTHERS_SILENT, writer is not None and not silent)
        missed = MissedCalls() if silent and topology.is_elastic() else None
        setattr(self, _MISSED, missed)
        if not silent:
            return set_model(self, model)
        if name != writers.BAR:
            ranks = trained_by(model).ranks
            _announce(name, ranks[0], ranks[1], len(ranks))
        if writes:
            if missed is not None:
                call = functools.partial(set_model, self, model)
                missed.add("set_model", call)
            return keras.callbacks.Callback.set_model(self, model)
        return set_model(self, model)

    return decide


def _writer_of(callback: Callback, model: Model) -> int | None:
    """Returns the rank that writes for all, or `None` if each rank writes."""
    if not topology.is_initialized() or topology.stays_alone():
        return None
    if getattr(callback, _EVERY_RANK, False):
        return None
    if local_updates.are_allowed():
        # Each rank trains a model of its own.
        return None
    ranks = trained_by(model).ranks
    return ranks[0] if topology.rank() in ranks else None


def announce_by(announce: Callable[[str, int, int, int], None]) -> None:
    """Sets the function that announces that one rank alone writes.

    Args:
        announce: Callable, called on the other ranks with the name of the
            class, the rank that writes, the rank after it, and the number of
            ranks.
    """
    global _announce
    _announce = announce


@functools.cache
def _say(name: str, first: int, second: int, count: int) -> None:
    """Warns once, on the second rank, that the first rank alone writes."""
    if topology.rank() == second:
        notices.warn(
            f"rank {first} alone writes what `{name}` writes, for {count} "
            f"ranks{_BETTER.get(name, '')}. `kr.callbacks.EveryRank(callback)` "
            "has each rank write its own."
        )


_announce: Callable[[str, int, int, int], None] = _say
