"""Starting a process, and waiting for it: what a rank is to its launcher."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

_CHILD = str(Path(__file__).with_name("child.py"))


class ChildProcess(Protocol):
    """A process that has been started, the leader of a session of its own."""

    @property
    def pid(self) -> int:
        """Its id, which is not used again until `wait` has returned."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """What it prints, if that was to come through a pipe."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """The same of standard error."""

    def poll(self) -> int | None:
        """Returns its exit code once it has ended; leaves it a zombie.

        As in `subprocess`, a negative number is the signal that killed it.
        """

    def wait(self) -> None:
        """Waits for its end, and reaps it."""


class Start(Protocol):
    """How a process is started."""

    def __call__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        pass_fds: Sequence[int],
        cwd: Path | None,
    ) -> ChildProcess:
        """Starts one; see `RankProcess` for the arguments."""


class _Started:
    """A child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.stdout = process.stdout
        self.stderr = process.stderr

    def poll(self) -> int | None:
        ended = os.waitid(
            os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        )
        return None if ended is None else returncode(ended)

    def wait(self) -> None:
        self._process.wait()


def returncode(ended: os.waitid_result) -> int:
    """Returns an exit code, or the negative number of a signal."""
    exited = ended.si_code == os.CLD_EXITED
    return ended.si_status if exited else -ended.si_status


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int],
    cwd: Path | None,
    cpus: Sequence[int] = (),
    open_files: int | None = None,
    stdin: Path | None = None,
) -> ChildProcess:
    """Runs a command, whose life is tied to that of the calling thread."""
    shim = [sys.executable, "-I", "-S", _CHILD, str(os.getpid())]
    # Opened by each for itself: what one reads, the others read as well.
    with open(stdin or os.devnull, "rb") as standard_input:
        process = subprocess.Popen(
            [
                *shim,
                ",".join(map(str, cpus)),
                str(open_files or ""),
                *command,
            ],
            env=dict(environment),
            stdin=standard_input,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            cwd=cwd,
            start_new_session=True,
        )
    return _Started(process)


def starting(
    cpus: Sequence[int], open_files: int | None, stdin: Path | None
) -> Start:
    """Returns a `start` of processes that have something of their own.

    Args:
        cpus: The processors that they may run on; empty for no limit.
        open_files: Their soft limit of open files. Defaults to that of this
            process.
        stdin: What each of them reads from standard input; None for nothing.
    """
    return functools.partial(
        start, cpus=tuple(cpus), open_files=open_files, stdin=stdin
    )
