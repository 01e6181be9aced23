"""The resources of a job beside its ranks, and the order of their release."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from keras_ring.launch import child_process, job_processes
from keras_ring.launch.auto_hook import with_hook
from keras_ring.launch.directories import temporary_directory
from keras_ring.launch.rank_process import RankProcess
from keras_ring.protocol import error_file
from keras_ring.protocol.contract import RankContract
from keras_ring.protocol.job_id import job_id

BACKLOG = 4096


class _Watchdog:
    """The process that ends the job when this process is killed.

    A killed process cannot clean up itself. The watchdog notices the end of its
    input; see `job_processes`.
    """

    def __init__(self, directory: Path) -> None:
        # Without our variables, a job that started this one does not take
        # the watchdog for one of its own processes and kill it.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("KERAS_RING_")
        }
        script = job_processes.__file__
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        # Not as an argument, which other users could see, and then make a file
        # of that name first.
        self._tell(str(directory))

    def _tell(self, word: str) -> None:
        stdin = self._process.stdin
        if stdin is None:
            return
        try:
            stdin.write(os.fsencode(word) + b"\0")
            stdin.flush()
        except BrokenPipeError:
            # The watchdog was killed. The ranks still die with this process.
            return

    def watch(self, session: int) -> None:
        """Adds a rank's session to those that the watchdog kills."""
        self._tell(str(session))

    def dismiss(self) -> None:
        """Ends the watchdog without any further action."""
        self._tell("done")
        self.give_up()

    def give_up(self) -> None:
        """Lets the watchdog end and remove the job, and waits for it."""
        try:
            self._process.communicate()
        except BrokenPipeError:
            self._process.wait()


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """The address where the ranks of a job meet, and the secret of the job.

    Args:
        address: String, `host:port` where rank 0 serves the store.
        key: String of 64 hexadecimal characters, known only to the ranks.
        listener: The listening socket on the host of rank 0; elsewhere `None`.
    """

    address: str
    key: str = field(repr=False)
    listener: socket.socket | None = None

    @classmethod
    def on_loopback(cls, key: str | None = None) -> "Rendezvous":
        """Returns a rendezvous for a job on this host alone.

        The kernel chooses the port, and rank 0 inherits the socket itself, so
        no other process can take the port in between.

        Args:
            key: String, the secret. Defaults to a new one.
        """
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        return cls(
            address=f"127.0.0.1:{listener.getsockname()[1]}",
            key=key or new_key(),
            listener=listener,
        )


def new_key() -> str:
    """Returns the secret of a new job."""
    return secrets.token_hex(32)


class Job:
    """A job whose ranks start on this host, without leftovers at its end.

    It is a context manager. On exit, every process of the job is dead, and its
    private directory and watchdog are gone.

    Args:
        size: Integer, the number of ranks of the job. All or some of them start
            on this host.
        rendezvous: `Rendezvous` of the ranks, whose socket is closed with the
            job. Defaults to one on this host alone.
        host_ids: Sequence of strings, one host identity for each rank, for
            tests that simulate several hosts.
        start: Function that starts a rank, if none of `cpus`, `open_files` and
            `stdin` is set.
        open_files: Integer, the soft limit of open files of the ranks. Defaults
            to that of this process.
        stdin: Bytes that each rank reads from standard input.
    """

    def __init__(
        self,
        size: int,
        *,
        rendezvous: Rendezvous | None = None,
        host_ids: Sequence[str] | None = None,
        start: child_process.Start = child_process.start,
        open_files: int | None = None,
        stdin: bytes = b"",
    ) -> None:
        self._size = size
        self._open_files = open_files
        self._start = start
        self._host_ids = host_ids
        self._ranks: list[RankProcess] = []
        name = f"keras-ring-{secrets.token_hex(8)}"
        self.directory = temporary_directory() / name
        # Before the directory is made, because the watchdog has to remove it if
        # this process is killed.
        self._watchdog = _Watchdog(self.directory)
        try:
            self.directory.mkdir(mode=0o700)
            self._stdin = self._kept(stdin)
            self._rendezvous = rendezvous or Rendezvous.on_loopback()
        except OSError:
            self._watchdog.give_up()
            raise

    def _kept(self, stdin: bytes) -> Path | None:
        if not stdin:
            return None
        path = self.directory / "stdin"
        path.write_bytes(stdin)
        return path

    def __enter__(self) -> "Job":
        """Returns the job."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all processes that are left of the job."""
        self.close()

    @property
    def status_id(self) -> str:
        """The name of the job's folder of status pages."""
        return job_id(self._rendezvous.key)

    def start(
        self,
        rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
        membership_fd: int | None = None,
        joins: bool = False,
        cwd: Path | None = None,
        cpus: Sequence[int] = (),
    ) -> RankProcess:
        """Starts one rank. If rank 0 is on this host, it must be the first.

        Args:
            rank: Integer, the rank.
            command: Sequence of strings, the program and its arguments.
            environment: Environment variables to which those of the rank are
                added.
            stdout: The standard output, as for `subprocess.Popen`.
            stderr: The standard error, as for `subprocess.Popen`.
            pass_fds: Descriptors that the rank inherits.
            membership_fd: Integer, the descriptor of its socket to the launcher
                of an elastic job, which it inherits. `None` in other jobs.
            joins: Boolean, whether it joins an elastic job that runs. It is a
                job of its own until then.
            cwd: Path of the working directory. Defaults to that of this
                process.
            cpus: Processors that the rank may run on. Defaults to those of this
                process.

        Returns:
            The `RankProcess`.
        """
        listener = self._rendezvous.listener if rank == 0 else None
        inherited = [] if listener is None else [listener.fileno()]
        rendezvous_fd = inherited[0] if inherited else None
        if membership_fd is not None:
            inherited.append(membership_fd)
        contract = RankContract(
            rank=0 if joins else rank,
            size=1 if joins else self._size,
            joins_as=rank if joins else None,
            rendezvous=self._rendezvous.address,
            rendezvous_fd=rendezvous_fd,
            membership_fd=membership_fd,
            job_key=self._rendezvous.key,
            error_file=str(self._error_path(rank)),
            host_id=self._host_ids[rank] if self._host_ids else None,
        )
        process = RankProcess(
            rank,
            command,
            with_hook(contract.environment(environment)),
            stdout=stdout,
            stderr=stderr,
            pass_fds=[*pass_fds, *inherited],
            cwd=cwd,
            start=(
                child_process.starting(cpus, self._open_files, self._stdin)
                if cpus or self._open_files or self._stdin
                else self._start
            ),
        )
        self._ranks.append(process)
        self._watchdog.watch(process.pid)
        # Close this copy, so that a connection to a dead rank 0 is refused.
        if listener is not None:
            listener.close()
        return process

    def _error_path(self, rank: int) -> Path:
        return self.directory / f"rank.{rank}.error.json"

    def error(self, rank: int) -> error_file.RankError | None:
        """Returns the exception that a rank recorded, if any."""
        return error_file.read(self._error_path(rank))

    def started(self, rank: int) -> bool:
        """Returns whether a rank has called `keras_ring.init()`."""
        return error_file.has_started(self._error_path(rank))

    def kill_all(self) -> set[int]:
        """Kills every process of the job.

        Returns:
            Set of the killed ids, as from `job_processes.kill_all`.
        """
        sessions = {process.pid for process in self._ranks}
        return job_processes.kill_all(str(self.directory), sessions)

    def close(self) -> None:
        """Kills the processes that are left, then frees the resources."""
        self.kill_all()
        for process in self._ranks:
            process.release()
        self._ranks.clear()
        if self._rendezvous.listener is not None:
            self._rendezvous.listener.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        # Last, because a second Ctrl-C may end this process before.
        self._watchdog.dismiss()
