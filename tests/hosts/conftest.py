"""Jobs on several hosts, which are those of the lab."""

import os
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.lab import lab as lab_module

# Not one of keras_ring's own names: the watchdog drops those.
_MARK = "HOSTS_TEST_MARK"


@pytest.fixture(scope="module")
def lab():
    """Three hosts."""
    if why := lab_module.missing():
        pytest.skip(why)
    with lab_module.lab(3) as made:
        yield made


class Jobs:
    """Starts commands, and finds what is left of them on any host."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen] = []

    def start(
        self, command, *, with_input=False, output=None, **environment
    ) -> subprocess.Popen:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if with_input else None,
            env={
                **os.environ,
                "PYTHONPATH": str(lab_module.ROOT),
                _MARK: self._mark,
                **environment,
            },
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE if output is None else output,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, command, *, limit=60.0, **environment):
        process = self.start(command, **environment)
        out, err = process.communicate(timeout=limit)
        return subprocess.CompletedProcess(
            command, process.returncode, out, err
        )

    def alive(self) -> dict[int, str]:
        """Returns what runs, by process id: all hosts share those."""
        mark = f"{_MARK}={self._mark}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes()
                    if command:
                        found[int(entry.name)] = command.decode()
            except OSError:
                continue
        return found

    def wait_until_gone(self, seconds: float) -> dict[int, str]:
        """Returns what is left after that time."""
        end = time.monotonic() + seconds
        while (alive := self.alive()) and time.monotonic() < end:
            time.sleep(0.05)
        return alive

    def kill(self) -> None:
        for pid in self.alive():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        for process in self._started:
            process.wait(timeout=10)
            if process.stdin is not None:
                process.stdin.close()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def jobs():
    """Starts commands; afterwards nothing of them may be left."""
    made = Jobs()
    try:
        yield made
        left = made.wait_until_gone(5.0)
        assert not left, left
    finally:
        made.kill()
