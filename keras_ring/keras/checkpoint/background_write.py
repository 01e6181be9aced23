"""Writes on rank 0 while the training goes on; one write at a time.

All ranks call these functions at the same points, so that a failed write is an
error on all of them. The thread touches files only: it writes a copy of the
state, and uses no variables and no collectives.

The program ends after the last write, because `concurrent.futures` waits for
its threads.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from keras_ring.core import arrays, reduce_ops, topology
from keras_ring.core.process_sets import global_process_set, is_alone
from keras_ring.keras.agreement.time_budget import Budget
from keras_ring.keras.checkpoint.rank_zero import on_rank_zero

_ALLOWANCE = 0.1  # seconds of frequent checks whether a write has ended


class _Pending:
    """The write that all ranks have begun and have not waited for yet."""

    def __init__(self) -> None:
        self.what: str | None = None
        self.future: Future[None] | None = None
        self.budget = Budget(_ALLOWANCE)


_pending = _Pending()


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="kr-checkpoint")


def begin(what: str, write: Callable[[], None]) -> None:
    """Begins to write. All ranks must call it, after `wait`.

    Args:
        what: String, the action of rank 0 for an error, such as "write x".
        write: Function that rank 0 calls in another thread.
    """
    _pending.what = what
    _pending.budget = Budget(_ALLOWANCE)
    if topology.rank() == 0:
        _pending.future = _thread().submit(write)


def wait() -> None:
    """Waits until the current write is on the disk. All ranks must call it.

    Raises:
        CheckpointError: On all ranks, if the write has failed.
    """
    if _pending.what is None:
        return
    what, future = _pending.what, _pending.future
    _pending.what = _pending.future = None

    def result() -> None:
        if future is not None:
            future.result()
        else:
            warnings.warn(
                f"The job has lost the rank that was to {what}: there is this "
                "checkpoint, or the one before it.",
                RuntimeWarning,
                stacklevel=2,
            )

    on_rank_zero(what, result, "checkpoint/wait")


def look() -> None:
    """Raises the error of a failed write soon, and not only at the end.

    All ranks must call it after the same steps. It costs nothing while nothing
    is being written. The first checks take a tenth of a second together, and
    all later ones a hundredth of the time.

    Raises:
        CheckpointError: As in `wait`.
    """
    budget = _pending.budget
    if _pending.what is None or not budget.is_due():
        return
    with budget.checking():
        is_over = _pending.future is not None and _pending.future.done()
        anywhere, periods = int(is_over), budget.wish()
        if not is_alone(global_process_set):
            anywhere, periods = arrays.allreduce(
                np.array([is_over, periods], np.int32),
                reduce_ops.Max,
                name="checkpoint/look",
                process_set=global_process_set,
            )
    budget.agreed(int(periods))
    if anywhere:
        wait()
