"""Has rank 0 do once what a program of one process does once.

All ranks come to such a call, agree that they mean the same, and go on when
rank 0 has done it, with its result or its error. Nobody begins before all have
come: what a program looks at before the call (`if not os.path.exists(...)`) is
on all ranks what it was.

A rank that comes alone would wait for ever, so it does not wait where it may
be alone: in another thread, in a function that `tf.data` calls, in a child, in
what a callback does on one rank, at the end of the program, while it handles an
error that is not on all ranks, and once the program has asked for its rank, as
it then says itself who does what. Where none of this is so and the others do
not come, it ends in an error that has the line.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from keras_ring._auto import passes, script
from keras_ring._auto.said import say
from keras_ring._auto.settings import AutoSettings
from keras_ring._fit import one_writer
from keras_ring._keras.patching import patch_once
from keras_ring._launch_protocol import contract
from keras_ring._runtime import topology
from keras_ring.core.meeting import Meeting, bytes_of_rank_0
from keras_ring.core.objects import as_bytes, from_bytes
from keras_ring.errors import AutoError, JobEndedError

_Result = TypeVar("_Result")
_ASKS = ("rank", "local_rank", "cross_rank", "rank_op", "local_rank_op")
_NAME = "auto/once"
# Of the seconds after which it is an error, those until it is said who waits
# for what; and until a rank goes on alone, that handles an error or was told
# by the program.
_SAID_SHARE = 1 / 10
_ALONE_SHARE = 1 / 30
# On an error that all ranks have raised.
_SHARED = "_keras_ring_on_all_ranks"
_running: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "keras_ring_once", default=False
)
_pid = 0
_rank = 0
_wait = float(AutoSettings().wait)
_is_asked = False
_is_given_up = False


def install(settings: AutoSettings) -> None:
    """Has it noted when a program asks for its rank. Once is enough.

    Args:
        settings: What was asked for.
    """
    global _pid, _rank, _wait
    _pid, _rank, _wait = os.getpid(), topology.rank(), float(settings.wait)
    # What a program imports, which this is a part of.
    package = sys.modules["keras_ring"]
    for name in _ASKS:
        patch_once(package, name, _noted, "a program may say who does what")


def _noted(ask: Callable[..., Any]) -> Callable[..., Any]:
    def note(*args: Any, **kwargs: Any) -> Any:
        global _is_asked
        if script.is_called_by_program():
            _is_asked = True
        return ask(*args, **kwargs)

    note.__name__, note.__doc__ = ask.__name__, ask.__doc__
    return note


def is_running() -> bool:
    """Whether the caller is part of what is done once."""
    return _running.get()


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Has what is called inside be part of what is done once."""
    token = _running.set(True)
    try:
        yield
    finally:
        _running.reset(token)


def is_of_all_ranks() -> bool:
    """Whether the other ranks come to what is called here, too."""
    return (
        not _running.get()
        and not one_writer.is_writing_alone()
        and threading.current_thread() is threading.main_thread()
        and os.getpid() == _pid
        and not is_over()
        and not script.is_in_data()
    )


def is_said_by_program() -> bool:
    """Whether the program asks for its rank, and so says who does what."""
    return _is_asked


def is_over() -> bool:
    """Whether ranks do not wait for each other any more."""
    return (
        _is_given_up
        or not topology.is_initialized()
        # Python calls what is registered by `atexit`.
        or not threading.main_thread().is_alive()
    )


def is_failing() -> bool:
    """Whether an error is handled here that other ranks may not have."""
    error = sys.exc_info()[1]
    return error is not None and not hasattr(error, _SHARED)


def by_rank_zero(
    do: Callable[[], _Result],
    what: str,
    places: Sequence[str],
    *,
    on_others: Callable[[], _Result] | None = None,
    is_done: Callable[[], bool] | None = None,
) -> Any:
    """Does something on rank 0, where all ranks mean the same.

    Where they do not, as in a directory of each rank's own, each does it.

    Args:
        do: Does it, on rank 0.
        what: String, what it is: "os.mkdir".
        places: Strings, the paths of files and directories that it is about.
        on_others: What the other ranks do afterwards. Defaults to nothing.
        is_done: Whether it is done, in the files that this rank sees. One rank
            of each host that does not see it does it as well. Defaults to
            `None`: that of rank 0 is enough.

    Returns:
        What rank 0 has made; or what `on_others` has.

    Raises:
        AutoError: If not all ranks come here.
        Exception: On all ranks, what rank 0 has raised.
    """
    try:
        is_same = mean_same(what, places)
    except JobEndedError:
        return after_end(do, is_done, on_others)
    if is_same is None:
        return do()
    with running():
        if not is_same:
            return do()
        if topology.rank() == 0:
            result = _done_for_all(do)
        else:
            result = _done_by_other(on_others)
        if is_done is not None and topology.cross_size() > 1:
            _follow(do, is_done)
        return result


def mean_same(what: str, places: Sequence[str]) -> bool | None:
    """Whether all ranks have come to do the same.

    Args:
        what: String, what it is: "os.mkdir".
        places: Strings, the paths of files and directories that it is about.

    Returns:
        Boolean, the same on all ranks; `None` if this one goes on alone.

    Raises:
        AutoError: If not all ranks come here.
    """
    meeting = Meeting(f"{_NAME}/places", "\n".join([what, *places]))
    doing = f"{script.line()} calls `{what}` for {', '.join(map(repr, places))}"
    return meeting.is_same() if _have_come(meeting, doing) else None


def after_end(
    do: Callable[[], _Result],
    is_done: Callable[[], bool] | None = None,
    on_others: Callable[[], _Result] | None = None,
) -> Any:
    """Does something where ranks do not wait for each other any more.

    Args:
        do: Does it.
        is_done: Whether it is done: another rank may do the same, or have done
            it, which is no error. `None` if that cannot be told; then it is
            left to rank 0.
        on_others: What the other ranks do then. Defaults to nothing.
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
    """Waits until all ranks have come, and not for ever.

    Returns:
        Whether they have; if not, this rank goes on alone.
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
    # The others may still come there: nothing is asked of them meanwhile.
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


def _done_for_all(do: Callable[[], _Result]) -> _Result:
    try:
        with passes.alone():
            result = do()
    except Exception as error:
        failure: Exception = error
        if as_bytes(error) is None:
            failure = OSError(f"on rank 0: {type(error).__name__}: {error}")
        bytes_of_rank_0(as_bytes((None, failure)) or b"", f"{_NAME}/done")
        setattr(error, _SHARED, True)
        raise
    nothing = as_bytes((None, None)) or b""
    bytes_of_rank_0(as_bytes((result, None)) or nothing, f"{_NAME}/done")
    return result


def _done_by_other(on_others: Callable[[], _Result] | None) -> Any:
    result, error = from_bytes(bytes_of_rank_0(b"", f"{_NAME}/done"))
    if error is not None:
        setattr(error, _SHARED, True)
        raise error
    return result if on_others is None else on_others()


def _follow(do: Callable[[], Any], is_done: Callable[[], bool]) -> None:
    """Does it once on each host that has other files than rank 0."""
    if topology.local_rank() == 0 and not is_done():
        # Of files that are shared after all, what is seen may be old.
        with contextlib.suppress(OSError):
            do()
    Meeting(f"{_NAME}/followed", "").wait(None)
