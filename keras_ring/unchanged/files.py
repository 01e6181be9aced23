"""Makes rank 0 alone write the files that one process would write once.

`keras/fit/one_writer.py` does that for callbacks of Keras. This module does it
for calls of the program, which all ranks make, and in which they wait until the
file is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.errors import AutoError
from keras_ring.keras.fit import one_writer
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.unchanged import once, paths, script

_PURPOSE = "rank 0 writes, and the others wait for it"
_PATHS = ("filepath", "path")
_IMAGE = "save_img"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def install() -> None:
    """Changes functions that save models, and observes other writes."""
    # In its first call it opens files under a lock, and each that is opened
    # from now on would make it be called (`paths.is_of_one_rank`).
    tempfile.gettempdir()
    hooks.subscribe(
        events.MODEL_SAVED,
        _written_once,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.MODEL_EXPORTED,
        _written_once,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.IMAGE_SAVED,
        _written_once,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.FILE_FETCHED,
        _one_at_a_time,
        ring=Ring.UNCHANGED,
        purpose="ranks share a directory",
    )
    one_writer.announce_by(_announce)
    sys.addaudithook(_look)


def _announce(name: str, rank: int, second: int, count: int) -> None:
    del rank
    if topology.rank() == second:
        say(f"files of {name}: written by rank 0 of {count}", rank=second)


def _written_once(write: Callable[..., Any]) -> Callable[..., Any]:
    name = write.__name__
    what = f"keras.utils.{name}" if name == _IMAGE else f"model.{name}"

    @functools.wraps(write)
    def write_once(*args: Any, **kwargs: Any) -> None:
        do = functools.partial(write, *args, **kwargs)
        if once.is_running() or one_writer.is_writing_alone():
            do()
            return
        named = [kwargs[name] for name in _PATHS if name in kwargs]
        # The model comes before the path; of images, the path is first.
        path = str(named[0] if named else args[name != _IMAGE])
        once.by_rank_zero(do, what, [path])

    return write_once


@contextlib.contextmanager
def _one_at_a_time(directory: str) -> Iterator[None]:
    """Runs the context in one process at a time.

    The next processes find the files that the first has fetched.

    Args:
        directory: String, the directory that files are fetched to.
    """
    path = Path(directory, "keras_ring.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _look(event: str, args: tuple[Any, ...]) -> None:
    """Warns, once per line and path, of files that each rank writes.

    This is an audit hook of Python.

    Raises:
        AutoError: If the program appends to a file.
    """
    if event != "open" or sys.is_finalizing() or once.is_running():
        return
    path, mode, flags = args
    if not isinstance(path, str) or not (flags or 0) & _WRITES:
        return
    if paths.is_of_one_rank(path) or one_writer.is_writing_alone():
        return
    # Once the job has ended, each rank writes as one process would.
    if once.is_said_by_program() or not topology.is_initialized():
        return
    line, is_log = script.line_of_own_call()
    if not line:
        return
    if "a" in (mode or "") and not is_log:
        raise AutoError(
            f"{line} appends to {path!r} on each of the {topology.size()} "
            "ranks, which would leave as many entries there. Write, after "
            "`import keras_ring as kr`:\n"
            "    if kr.rank() == 0:"
        )
    say(
        f"WARNING: {line} writes {path!r} on each of the "
        f"{topology.size()} ranks. Write it on one: `if kr.rank() == 0:`, "
        "after `import keras_ring as kr`"
    )
