"""Makes rank 0 alone write the files that a program writes with TensorFlow.

Saving a checkpoint also changes state in memory, such as the number of the next
one. So the other ranks save as well, but without writing and deleting files.

A writer of summaries, records or other files that a program holds open writes
nothing on the other ranks. When they close a file of records or the like, they
wait until rank 0 has closed its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.keras import scope
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.unchanged import once, paths, script

_PURPOSE = "rank 0 writes files of TensorFlow, and the others wait"
_SILENCE = "other ranks change no files of checkpoints"
# An attribute of a writer that all ranks have for the same file: its path.
_PATH = "_keras_ring_path"

_BY_NAME = ("path", "export_dir", "filename", "logdir")


def install() -> None:
    """Changes TensorFlow's functions that write files. Once is enough."""
    hooks.subscribe(
        events.CHECKPOINT_SAVED,
        _checkpoint_once,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.CHECKPOINT_FILES,
        _unless_silent,
        ring=Ring.UNCHANGED,
        purpose=_SILENCE,
    )
    hooks.subscribe(
        events.FILE_WRITTEN,
        _written_once,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.SUMMARIES_OPENED,
        _summaries_once,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.FILE_OPENED,
        _opened,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.FILE_CLOSED,
        _closed,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def _is_due(path: Any) -> bool:
    """Returns whether the program calls for a write that all ranks make.

    Args:
        path: String, path or tensor, the file or directory to write.
    """
    return (
        not once.is_running()
        and not once.is_said_by_program()
        and tf.executing_eagerly()
        and (once.is_of_all_ranks() or once.is_over())
        and not paths.is_of_one_rank(_text(path))
        and bool(script.line_of_own_call()[0])
    )


def _text(path: Any) -> str:
    if tf.is_tensor(path):
        path = path.numpy()
    return os.fsdecode(path)


def _checkpoint_once(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def save_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        do = functools.partial(save, self, *args, **kwargs)
        if isinstance(self, tf.train.CheckpointManager):
            prefix = self._prefix
        else:
            prefix = args[0] if args else kwargs.get("file_prefix", "")
        if not _is_due(prefix):
            return do()

        def do_silently() -> Any:
            with _silence():
                return do()

        name = f"{type(self).__name__}.{save.__name__}"
        if not once.is_over():
            say(f"files of tf.train.{type(self).__name__}: written by rank 0")
        return once.by_rank_zero(
            do, name, [os.path.abspath(_text(prefix))], on_others=do_silently
        )

    return save_once


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with scope.inside(is_checkpoint_silent=True):
        yield


def _unless_silent(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def write_unless_silent(*args: Any, **kwargs: Any) -> Any:
        if not scope.current().is_checkpoint_silent:
            return write(*args, **kwargs)
        # The path of the checkpoint, as the original returns it.
        return kwargs.get("file_prefix", args[-1] if args else None)

    return write_unless_silent


def _written_once(write: Callable[..., Any]) -> Callable[..., Any]:
    # The index of the argument that is the path.
    index = 0 if write.__name__ == "write_file" else 1

    @functools.wraps(write)
    def write_once(*args: Any, **kwargs: Any) -> Any:
        do = functools.partial(write, *args, **kwargs)
        # The path may also be given by name.
        given = args[index] if len(args) > index else None
        for name in _BY_NAME:
            given = kwargs.get(name, given)
        if given is None or not _is_due(given):
            return do()
        return once.by_rank_zero(do, write.__name__, [_text(given)])

    return write_once


def _summaries_once(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def create_once(logdir: Any, *args: Any, **kwargs: Any) -> Any:
        if once.is_over() or topology.rank() == 0 or not _is_due(logdir):
            return create(logdir, *args, **kwargs)
        # Other ranks write no summaries, whatever the time in the path is.
        return tf.summary.create_noop_writer()

    return create_once


def _opened(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def open_once(self: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        is_record = isinstance(self, tf.io.TFRecordWriter)
        mode = "w" if is_record else str([*args, *kwargs.values(), "r"][0])
        if (
            set(mode) <= set("rb")
            or not _is_due(path)
            or once.is_over()
            or once.is_failing()
        ):
            init(self, path, *args, **kwargs)
            return
        own = _text(path)
        is_same = once.mean_same("open", [own])
        is_left_out = is_same and topology.rank() > 0
        init(self, os.devnull if is_left_out else path, *args, **kwargs)
        if is_same:
            setattr(self, _PATH, own)

    return open_once


def _closed(close: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(close)
    def close_once(self: Any, *args: Any) -> Any:
        path = vars(self).pop(_PATH, None)
        do = functools.partial(close, self, *args)
        if path is None or not once.is_of_all_ranks() or once.is_failing():
            return do()
        return once.by_rank_zero(do, "close", [path], on_others=do)

    return close_once
