"""A launcher, and its ranks, forked from a process that has imported all.

The launcher does what `keras-ring run` does, but starts ranks by forking
itself: they are its children, as usual, and cost what training costs and not
the import of TensorFlow. What is left of a job comes to this process, the
subreaper, and is found among its children.
"""

import contextlib
import ctypes
import io
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from keras_ring.launch import child_process
from keras_ring.launch.cli import run
from keras_ring.launch.job import Job
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.supervisor import Supervisor
from tests.harness import forked

_PR_SET_CHILD_SUBREAPER = 36


class _Fork:
    """A rank; a `child_process.ChildProcess`."""

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr

    def poll(self) -> int | None:
        ended = os.waitid(
            os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        )
        return None if ended is None else child_process.returncode(ended)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


def _starter(program: Callable[[], None]) -> child_process.Start:
    """Returns what starts ranks that run `program`, whatever the command."""

    def start(
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        pass_fds: Sequence[int],
        cwd: Path | None,
    ) -> _Fork:
        forked.check_one_thread()
        pipes = [os.pipe(), os.pipe()]
        files = {number: pipe[1] for number, pipe in enumerate(pipes, start=1)}
        pid = forked.fork(environment, files, keep=pass_fds)
        if pid == 0:
            forked.end_with(lambda: forked.run(program))
        readable = []
        for ours, theirs in pipes:
            os.close(theirs)
            readable.append(io.FileIO(ours))
        return _Fork(pid, *readable)

    return start


class ForkedLauncher:
    """A job under a launcher of its own.

    Args:
        size: Number of ranks.
        program: What each rank runs.
        environment: Added to that of this process.
        directory: Where what it prints goes, and the ids of its ranks.
    """

    def __init__(
        self,
        size: int,
        program: Callable[[], None],
        environment: Mapping[str, str],
        directory: Path,
    ) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._directory = directory
        self.returncode: int | None = None
        self._plan = LaunchPlan(
            size=size,
            command=("forked",),
            environment={**os.environ, **environment},
        )
        self.pid = forked.start(
            lambda: self._launch(program),
            {**os.environ, **environment},
            directory,
            tied=False,
        )

    def _launch(self, program) -> int:
        tempfile.tempdir = None  # what TMPDIR says
        start = _starter(program)

        def noted(*args, **kwargs):
            rank = start(*args, **kwargs)
            number = args[1]["KERAS_RING_RANK"]
            path = self._directory / f"pid.{number}"
            path.with_suffix(".part").write_text(str(rank.pid))
            path.with_suffix(".part").rename(path)
            return rank

        with Job(self._plan.size, start=noted) as job:
            end = Supervisor(self._plan, job).run()
        return run.report(end, self._plan)

    def pid_of_rank(self, rank: int) -> int | None:
        """Returns the process of a rank; None before it has been started."""
        path = self._directory / f"pid.{rank}"
        # Renamed, so it is whole.
        return int(path.read_text()) if path.exists() else None

    def wait(self, seconds: float) -> bool:
        """Waits so long for the launcher's end; returns whether it came."""
        end = time.monotonic() + seconds
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                return False
            else:
                time.sleep(0.01)
        return True

    def stderr(self) -> str:
        """Returns what the launcher printed."""
        return forked.stderr(self._directory)

    def end(self, seconds: float) -> set[int]:
        """Returns what still runs after so long, and kills it."""
        until = time.monotonic() + seconds
        while (alive := _children()) and time.monotonic() < until:
            time.sleep(0.02)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while _children():
            time.sleep(0.02)
        return alive


def _children() -> set[int]:
    """Reaps the children that have ended; returns the others."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return set()
        if pid == 0:
            break
    path = f"/proc/self/task/{os.getpid()}/children"
    return {int(word) for word in Path(path).read_text().split()}
