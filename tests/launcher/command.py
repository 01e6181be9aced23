"""Runs the `keras-ring` command and looks for what it left behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from keras_ring.launch import job_processes

# Seconds of a command that does not end. Ranks that import TensorFlow take many
# of them on a busy machine.
LIMIT = 120.0
# Not one of keras_ring's own names: the watchdog drops those.
MARK = "LAUNCHER_TEST_MARK"


class Command:
    """A `keras-ring` command whose processes carry a mark of their own."""

    def __init__(self, *words: str, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        inherited = dict(os.environ)
        inherited.pop("PYTHONUNBUFFERED", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "keras_ring", *words],
            env={**inherited, **environment, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def wait(self) -> subprocess.CompletedProcess:
        out, err = self.process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(
            self.process.args,
            self.process.returncode,
            out.decode("utf-8", "backslashreplace"),
            err.decode("utf-8", "backslashreplace"),
        )

    def alive(self) -> set[int]:
        """Returns the live processes that inherited the mark."""
        mark = f"{MARK}={self.mark}".encode()
        found = set()
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environ = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if mark in environ.split(b"\0"):
                found.add(int(entry))
        return found

    def wait_until_gone(self, seconds: float) -> set[int]:
        """Returns what is still alive after that time, and kills it."""
        end = time.monotonic() + seconds
        while (alive := self.alive()) and time.monotonic() < end:
            time.sleep(0.02)
        job_processes.send(alive, signal.SIGKILL)
        self.process.wait(timeout=LIMIT)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return alive


def wait_for_files(folder: Path, names: set[str]) -> None:
    """Waits until ranks have made these files."""
    end = time.monotonic() + LIMIT
    while not names <= set(os.listdir(folder)):
        if time.monotonic() > end:
            raise TimeoutError(f"only {os.listdir(folder)} of {names}")
        time.sleep(0.02)
