"""A forked process that goes on as if an interpreter had just started in it."""

import atexit
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1


def check_one_thread() -> None:
    """Raises if this process should not fork."""
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise RuntimeError(f"a process with {len(threads)} threads forks")


def die_with(parent: int) -> None:
    """Ties the life of this process to that of `parent`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have died before the line above.
    if os.getppid() != parent:
        os._exit(1)


def close_all_but(kept: Collection[int]) -> None:
    """Closes all descriptors but the standard ones and these."""
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # that of the listing itself


def run(
    function: Callable[[], None],
    ended: Callable[[BaseException | None], None] = lambda error: None,
) -> int:
    """Runs a program as the interpreter does; returns its exit code.

    Args:
        function: The program.
        ended: Called with the error that ends it, if any.
    """
    code = 0
    try:
        function()
        ended(None)
        threading._shutdown()
    except SystemExit as error:
        ended(error)
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        ended(error)
        code = 1
        # May end the process itself.
        sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    return code
