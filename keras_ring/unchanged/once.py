"""Makes rank 0 make calls that a program for one process makes once.

All ranks reach such a call, agree that they mean the same, and continue with
the result or the error of rank 0. Rank 0 does not begin before all have come,
so that what a program checks before the call (`if not os.path.exists(...)`) is
the same on all ranks.

A rank that comes alone would wait forever. So ranks do not wait for each other
where one may be alone: in another thread, in a function that `tf.data` calls,
in a child process, in a callback that runs on one rank, or at the end of the
program. They wait only briefly while they handle an error that other ranks may
not have, and after the program has asked for its rank, because it may then
decide itself which rank does what. In all other cases, ranks that do not come
are an error that names the line of the program.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from keras_ring.core import topology
from keras_ring.core.meeting import Meeting
from keras_ring.core.notices import say
from keras_ring.core.rank_zero import call_on_rank_zero
from keras_ring.errors import AutoError, JobEndedError
from keras_ring.keras import scope
from keras_ring.keras.fit import one_writer
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.protocol import contract
from keras_ring.unchanged import data_passes, script
from keras_ring.unchanged.settings import AutoSettings

_Result = TypeVar("_Result")
_NAME = "auto/once"
# Fractions of the time after which waiting is an error: until a notice says
# what a rank waits for; and until a rank goes on alone if it handles an error
# or if the program has asked for its rank.
_SAID_SHARE = 1 / 10
_ALONE_SHARE = 1 / 30
# An attribute of errors that all ranks have raised.
_SHARED = "_keras_ring_on_all_ranks"
_pid = 0
_rank = 0
_wait = float(AutoSettings().wait)
_is_asked = False
_is_given_up = False


def install(settings: AutoSettings) -> None:
    """Records from now on whether the program asks for its rank.

    Args:
        settings: The `AutoSettings` of the program.
    """
    global _pid, _rank, _wait
    _pid, _rank, _wait = os.getpid(), topology.rank(), float(settings.wait)
    hooks.subscribe(
        events.RANK_ASKED,
        _noted,
        ring=Ring.UNCHANGED,
        purpose="a program may say who does what",
    )


def _noted(ask: Callable[..., Any]) -> Callable[..., Any]:
    def note(*args: Any, **kwargs: Any) -> Any:
        global _is_asked
        if script.is_called_by_program():
            _is_asked = True
        return ask(*args, **kwargs)

    note.__name__, note.__doc__ = ask.__name__, ask.__doc__
    return note


def is_running() -> bool:
    """Returns whether the caller runs in a call that is made once."""
    return scope.current().is_once


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Marks the code in the context as part of a call that is made once."""
    with scope.inside(is_once=True):
        yield


def is_of_all_ranks() -> bool:
    """Returns whether the other ranks reach the present call, too."""
    return (
        not scope.current().is_once
        and not one_writer.is_writing_alone()
        and threading.current_thread() is threading.main_thread()
        and os.getpid() == _pid
        and not is_over()
        and not script.is_in_data()
    )


def is_said_by_program() -> bool:
    """Returns whether the program has asked for its rank.

    If so, it may decide itself which rank does what.
    """
    return _is_asked


def is_over() -> bool:
    """Returns whether ranks do not wait for each other any more."""
    return (
        _is_given_up
        or not topology.is_initialized()
        # Functions that are registered with `atexit` are running.
        or not threading.main_thread().is_alive()
    )


def is_failing() -> bool:
    """Returns whether the caller handles an error that others may not have."""
    error = sys.exc_info()[1]
    return error is not None and not hasattr(error, _SHARED)


def by_rank_zero(
    do: Callable[[], _Result],
    what: str,
    paths: Sequence[str],
    *,
    on_others: Callable[[], _Result] | None = None,
    is_done: Callable[[], bool] | None = None,
) -> Any:
    """Calls a function on rank 0 alone, if all ranks mean the same.

    If they do not, as with a directory of each rank's own, each calls it. If
    ranks do not wait for each other any more, see `after_end`.

    Args:
        do: Callable without arguments, called on rank 0.
        what: String, the name of the call, such as "os.mkdir".
        paths: List of strings, the paths of files and directories that the
            call is about.
        on_others: Callable without arguments that the other ranks call
            afterwards. Defaults to `None`, for none.
        is_done: Callable that returns whether the call has taken effect in the
            file system that this rank sees. If not, one rank of each such host
            calls `do` as well. Defaults to `None`, if the call on rank 0 is
            enough.

    Returns:
        The result of `do` on rank 0, or that of `on_others` on other ranks.

    Raises:
        AutoError: If not all ranks come here.
        Exception: On all ranks, the error that rank 0 has raised.
    """
    if is_over():
        return after_end(do, is_done, on_others)
    try:
        is_same = mean_same(what, paths)
    except JobEndedError:
        return after_end(do, is_done, on_others)
    if is_same is None:
        return do()
    with running():
        if not is_same:
            return do()
        with data_passes.alone():
            outcome = call_on_rank_zero(do, f"{_NAME}/done")
        if outcome.error is not None:
            setattr(outcome.error, _SHARED, True)
            raise outcome.error
        result = outcome.result
        if on_others is not None and topology.rank() > 0:
            result = on_others()
        if is_done is not None and topology.cross_size() > 1:
            _follow(do, is_done)
        return result


def mean_same(what: str, paths: Sequence[str]) -> bool | None:
    """Returns whether all ranks have come to make the same call.

    Args:
        what: String, the name of the call, such as "os.mkdir".
        paths: List of strings, the paths of files and directories that the
            call is about.

    Returns:
        Boolean, the same on all ranks, or `None` if this one goes on alone.

    Raises:
        AutoError: If not all ranks come here.
    """
    meeting = Meeting(f"{_NAME}/paths", "\n".join([what, *paths]))
    doing = f"{script.line()} calls `{what}` for {', '.join(map(repr, paths))}"
    return meeting.is_same() if _have_come(meeting, doing) else None


def after_end(
    do: Callable[[], _Result],
    is_done: Callable[[], bool] | None = None,
    on_others: Callable[[], _Result] | None = None,
) -> Any:
    """Calls a function if ranks do not wait for each other any more.

    Args:
        do: Callable without arguments.
        is_done: Callable that returns whether the call has taken effect. If
            so, an `OSError` of `do` is ignored, because another rank may have
            made the same call. Defaults to `None`, if that cannot be told, so
            that only rank 0 calls `do`.
        on_others: Callable without arguments that the other ranks call if
            `is_done` is `None`. Defaults to `None`, for none.
    """
    if is_done is None:
        if _rank == 0:
            return do()
        return None if on_others is None else on_others()
    try:
        return do()
    except OSError:
        if not is_done():
            raise
        return None


def _have_come(meeting: Meeting, doing: str) -> bool:
    """Waits until all ranks have come, for a limited time.

    Args:
        meeting: The meeting of the ranks.
        doing: String, the call that they come to, for messages.

    Returns:
        Boolean, whether all have come. If not, this rank goes on alone.

    Raises:
        AutoError: If not all have come and this rank cannot go on alone.
    """
    global _is_given_up
    if is_failing() or _is_asked:
        _is_given_up = not meeting.wait(_ALONE_SHARE * _wait)
        return not _is_given_up
    if meeting.wait(_SAID_SHARE * _wait):
        return True
    say(
        f"rank {topology.rank()} waits: {doing}, which is done once, when all "
        "ranks have come there",
        rank=topology.rank(),
    )
    if meeting.wait((1 - _SAID_SHARE) * _wait):
        return True
    # The others may still come, so no later call waits for them.
    _is_given_up = True
    raise AutoError(
        f"{doing} on rank {topology.rank()}. It is done once for all ranks, by "
        f"rank 0, and in {_wait:g} s not all of them have come there "
        f"({contract.AUTO_WAIT} gives them more). If the program does it on "
        "some ranks alone, by something that differs between them (the time, "
        "a lock, a file that one of them has made), take that away; or say "
        "who does it, after `import keras_ring as kr`:\n"
        "    if kr.rank() == 0:"
    )


def _follow(do: Callable[[], Any], is_done: Callable[[], bool]) -> None:
    """Makes the call once on each host with other files than rank 0."""
    if topology.local_rank() == 0 and not is_done():
        # If the files are shared after all, this host may see an old state.
        with contextlib.suppress(OSError):
            do()
    Meeting(f"{_NAME}/followed", "").wait(None)
