"""Which exception a program has caught before it ended.

A program that catches the error of its step and ends with a code of its own
has raised nothing, as far as Python tells. Others in the job have lost it and
must be told why, and the launcher must not take one of them for the first.

What is taken down is the last error of a TensorFlow operation, and the
exception that is being handled when `sys.exit` is called. It counts only if the
rank has reduced nothing since: otherwise the program went on after it.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import Any, NoReturn

from keras_ring._launch_protocol import error_file
from keras_ring._launch_protocol.error_file import RankError
from keras_ring._runtime import native

_HOOKED = "_keras_ring_hooked"
# The exception, and the number of buckets that were reduced by then.
_last: tuple[RankError, int] | None = None


def install() -> None:
    """Takes note of what is handled when `sys.exit` is called."""
    leave = sys.exit
    if hasattr(leave, _HOOKED):
        return

    @functools.wraps(leave)
    def noting_exit(status: Any = None, /) -> NoReturn:
        handled = sys.exc_info()[1]
        if isinstance(handled, Exception) and status not in (None, 0):
            note(handled)
        leave(status)

    setattr(noting_exit, _HOOKED, True)
    sys.exit = noting_exit


def note(error: Exception) -> None:
    """Takes an exception down, in place of the one before.

    Args:
        error: It may not be raised yet. Nothing of it is kept alive.
    """
    global _last
    if native.core().is_initialized():
        noted = RankError.of(error, error.__traceback__)
        _last = replace(noted, caught=True), _reduced()


def reason() -> str:
    """Returns it on one line, `""` if there is none or the program went on."""
    error = _valid()
    return "" if error is None else f"{error}, which its program caught"


def write() -> None:
    """Tells it to the launcher; before the job is left."""
    error = _valid()
    if error is not None:
        error_file.write_caught(error)


def _valid() -> RankError | None:
    if _last is None or not native.core().is_initialized():
        return None
    error, reduced = _last
    return error if reduced == _reduced() else None


def _reduced() -> int:
    return int(native.core().metrics()["buckets"])
