"""One rank as a process: its start, its signals and its end."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from keras_ring.launch import child_process, job_processes


def _exit_watch(pid: int) -> int:
    """Returns a descriptor that becomes readable when a child has ended."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        # Linux before 5.3 has no pidfd, so a thread waits and closes a pipe.
        readable, writable = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writable)

    threading.Thread(target=wait, name="kr-wait", daemon=True).start()
    return readable


class RankProcess:
    """A started rank, the leader of its own session.

    The ended process remains a zombie until `release`. Until then its id is not
    reused, so signals cannot reach another process.

    It must be started from a thread that lives as long as the job, because the
    kernel ties the rank's life to the thread that started it.

    Args:
        rank: Integer, the rank.
        command: Sequence of strings, the program and its arguments.
        environment: Dictionary, all environment variables of the rank.
        stdout: The standard output, as for `subprocess.Popen`.
        stderr: The standard error, as for `subprocess.Popen`.
        pass_fds: Descriptors that the rank inherits.
        cwd: Path of the working directory. Defaults to that of this process.
        start: Function that starts the process.
    """

    def __init__(
        self,
        rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
        start: child_process.Start = child_process.start,
    ) -> None:
        self.rank = rank
        self.started = time.monotonic()
        self._process = start(
            command,
            environment,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            cwd=cwd,
        )
        self.pid = self._process.pid
        self.stdout = self._process.stdout
        self.stderr = self._process.stderr
        self._watch = _exit_watch(self.pid)
        self._returncode: int | None = None
        self.ended_first = False
        """Whether it had begun to end before it was sent a signal to end."""
        self._asked_to_end = False

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the rank has ended."""
        return self._watch

    def poll(self) -> int | None:
        """Returns `None` while the rank runs, then its exit code.

        As in `subprocess`, a negative number is the signal that killed it.
        """
        if self._returncode is None:
            self._returncode = self._process.poll()
        return self._returncode

    def note_signal(self) -> None:
        """Records that a signal to end follows. Call it before each of them.

        It may take seconds to free the memory of a killed rank, so it may still
        exist when the launcher ends the other ranks.
        """
        if not self._asked_to_end:
            self._asked_to_end = True
            self.ended_first = job_processes.is_exiting(self.pid)

    def send(self, signum: int) -> None:
        """Sends a signal to every process in the rank's session.

        It goes to the whole session, because a shell wrapper that dies of the
        signal would leave its program behind.
        """
        job_processes.send(job_processes.find(None, {self.pid}), signum)

    def send_if_caught(self, signum: int) -> None:
        """Sends a signal to the processes of the session that handle it.

        A request for a report must not kill a rank that cannot answer.
        """
        pids = job_processes.find(None, {self.pid})
        job_processes.send([p for p in pids if _catches(p, signum)], signum)

    def kill(self) -> None:
        """Kills every process in the rank's session."""
        self.send(signal.SIGKILL)

    def close(self) -> None:
        """Closes the descriptors of the ended process, whose output is read."""
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self._watch >= 0:
            os.close(self._watch)
            self._watch = -1

    def release(self) -> None:
        """Reaps the ended process, and closes its descriptors."""
        self._process.wait()
        self.close()


def _catches(pid: int, signum: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False
