"""The process of a rank as the launcher sees it: its start and its end."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

_CHILD = str(Path(__file__).with_name("child.py"))


class ChildProcess(Protocol):
    """A process that has been started, the leader of its own session."""

    @property
    def pid(self) -> int:
        """Its process id, which is not reused until `wait` has returned."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """The pipe from its standard output, or `None` if it has none."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """The pipe from its standard error, or `None` if it has none."""

    def poll(self) -> int | None:
        """Returns its exit code once it has ended, without reaping it.

        As in `subprocess`, a negative number is the signal that killed it.
        """

    def wait(self) -> None:
        """Waits for the end of the process, and reaps it."""


class Start(Protocol):
    """The type of a function that starts a process."""

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
        """Starts a process; see `RankProcess` for the arguments."""


class _Started:
    """A process that is a child of this one."""

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
    """Returns the exit code, or the negative number of the killing signal."""
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
    """Starts a command whose life is tied to that of the calling thread."""
    shim = [sys.executable, "-I", "-S", _CHILD, str(os.getpid())]
    # Each process opens the file for itself, so all of them read all of it.
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
    """Returns `start` with these arguments set.

    Args:
        cpus: Sequence of integers, the processors that the processes may run
            on; empty for no limit.
        open_files: Integer, their soft limit of open files. `None` for that of
            this process.
        stdin: Path of the file that each of them reads as standard input.
            `None` for an empty one.
    """
    return functools.partial(
        start, cpus=tuple(cpus), open_files=open_files, stdin=stdin
    )
