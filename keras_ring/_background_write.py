"""Writes on rank 0 while the training goes on; one write at a time.

All ranks call these functions at the same places, so that what rank 0 could
not write is an error on all of them. The thread touches files only: what it
writes was copied before, and it knows no variables and no other ranks.

The program does not end before the last write has: `concurrent.futures` waits
for its threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from keras_ring import basics
from keras_ring._rank_zero import on_rank_zero


class _Pending:
    """What has begun and was not waited for; the same on all ranks."""

    def __init__(self) -> None:
        self.what: str | None = None
        self.future: Future[Any] | None = None


_pending = _Pending()


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="kr-checkpoint")


def begin(what: str, write: Callable[[], Any]) -> None:
    """Begins to write. All ranks must call it, after `wait`.

    Args:
        what: String, what rank 0 does, for the error: "write x".
        write: Called on rank 0, in another thread.
    """
    _pending.what = what
    if basics.rank() == 0:
        _pending.future = _thread().submit(write)


def wait() -> None:
    """Waits until what has begun is on the disk. All ranks must call it.

    Raises:
        CheckpointError: On all ranks, if it could not be written.
    """
    if _pending.what is None:
        return
    what, future = _pending.what, _pending.future
    _pending.what = _pending.future = None
    on_rank_zero(what, future.result if future else _nothing, "checkpoint/wait")


def _nothing() -> None:
    """What other ranks have to wait for."""
