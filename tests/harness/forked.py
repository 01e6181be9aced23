"""A forked process that goes on as if an interpreter had just started in it.

The one place where tests fork. Three fronts use it: `prefork_server` for the
ranks of `run_ranks`, `forked_ranks` for the ranks of a job without a launcher,
and `forked_launcher` for a launcher and its ranks.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def check_one_thread() -> None:
    """Raises if this process should not fork."""
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise RuntimeError(f"a process with {len(threads)} threads forks")


def fork(
    environment: Mapping[str, str],
    files: Mapping[int, int],
    *,
    keep: Collection[int] | None = None,
    tied: bool = True,
) -> int:
    """Forks a process with the surroundings of one that was just started.

    It has a session of its own and signals as the interpreter sets them.

    Args:
        environment: All of its variables.
        files: Number of a descriptor there -> the descriptor here, which is
            closed there.
        keep: The descriptors that stay open as they are; None: all.
        tied: Boolean, whether it is killed when this process ends.

    Returns:
        The process id; 0 in the new process, which goes on from here.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_DFL)
        for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if tied:
            _die_with(parent)
        _move(files)
        if keep is not None:
            _close_all_but({*keep, *files})
        environment = dict(environment)
        os.environ.clear()
        os.environ.update(environment)
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    return 0


def start(
    body: Callable[[], int],
    environment: Mapping[str, str],
    directory: Path,
    *,
    suffix: str = "",
    keep: Collection[int] = (),
    tied: bool = True,
) -> int:
    """Forks a process that runs `body`; its output goes into files.

    Args:
        body: Returns the exit code.
        environment: All of its variables.
        directory: Where `stdout` and `stderr` go.
        suffix: What the names of these files end with.
        keep: The descriptors that stay open, beside the standard ones.
        tied: Boolean, whether it is killed when this process ends.

    Returns:
        The process id.

    Raises:
        RuntimeError: If this process has several threads.
    """
    check_one_thread()
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = {
        number: os.open(directory / f"{name}{suffix}", how, 0o600)
        for number, name in ((1, "stdout"), (2, "stderr"))
    }
    pid = fork(environment, files, keep=keep, tied=tied)
    if pid == 0:
        end_with(body)
    for fd in files.values():
        os.close(fd)
    return pid


def stderr(directory: Path, suffix: str = "") -> str:
    """Returns what a process of `start` printed to standard error."""
    path = directory / f"stderr{suffix}"
    return path.read_text(errors="replace") if path.exists() else ""


def end_with(body: Callable[[], int]) -> None:
    """Runs `body` and ends this process with the code that it returns."""
    code = 70
    try:
        code = body()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have died before the line above.
    if os.getppid() != parent:
        os._exit(1)


def _move(files: Mapping[int, int]) -> None:
    for number, fd in files.items():
        if fd == number:
            continue
        if number > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            raise RuntimeError(f"descriptor {number} is in use")
        os.dup2(fd, number)
        os.close(fd)


def _close_all_but(kept: Collection[int]) -> None:
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # that of the listing itself


def returncode(ended: os.waitid_result) -> int:
    """Returns an exit code, or the negative number of a signal."""
    exited = ended.si_code == os.CLD_EXITED
    return ended.si_status if exited else -ended.si_status


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
