"""Records the exception that a program has caught before it ended.

If a program catches the error of its step and ends with its own exit code,
Python reports no exception. The other ranks of the job lose this rank and must
be told why, and the launcher must not report one of them as the first failure.

This module records the last error of a collective or a TensorFlow operation,
and the exception that is being handled when `sys.exit` is called. The record is
valid only if the rank has reduced nothing since; otherwise the program has
continued after it.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import Any, NoReturn

from keras_ring.core import native
from keras_ring.protocol import error_file
from keras_ring.protocol.error_file import RankError

_HOOKED = "_keras_ring_hooked"
# The exception, and the number of buckets that were reduced by then.
_last: tuple[RankError, int] | None = None


def install() -> None:
    """Records the exception that is handled when `sys.exit` is called."""
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
    """Records an exception, in place of the one before.

    Args:
        error: Exception, which need not be raised yet. No reference to it is
            kept.
    """
    global _last
    if native.core().is_initialized():
        noted = RankError.of(error, error.__traceback__)
        _last = replace(noted, caught=True), _reduced()


def reason() -> str:
    """Returns the valid record on one line, or `""` if there is none."""
    error = _valid()
    return "" if error is None else f"{error}, which its program caught"


def write() -> None:
    """Reports the valid record to the launcher, before the job is left."""
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
