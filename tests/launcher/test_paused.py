"""A job on several hosts that is stopped as a whole, and goes on."""

import contextlib
import os
import signal
import time

import psutil
import pytest

from keras_ring.launch.patience import Patience
from tests.launcher.command import LIMIT, Command, wait_for_files

# $1: where ranks say that they are there, and what tells them to end.
RANK = """
: > "$1/rank.$KERAS_RING_RANK"
while [ ! -e "$1/end" ]; do sleep 0.05; done
echo DONE
"""


@pytest.fixture
def job(tmp_path):
    """A job of three ranks on two hosts, which runs."""
    shell = tmp_path / "rsh"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    command = Command(
        *("run", "-H", "host-a:2,host-b:1", "--rsh", str(shell), "--"),
        *("sh", "-c", RANK, "sh", str(tmp_path)),
    )
    try:
        wait_for_files(tmp_path, {"rank.0", "rank.1", "rank.2"})
        yield command
    finally:
        (tmp_path / "end").touch()
        send(command.alive(), signal.SIGCONT)
        assert command.wait_until_gone(10.0) == set()


def of_agents(command):
    """Returns the processes of the agents, by host."""
    return [
        child.pid
        for child in psutil.Process(command.process.pid).children()
        if "keras_ring.launch.agent" in " ".join(child.cmdline())
    ]


def send(pids, signum):
    """Sends a signal to those of the processes that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def stop(pids, seconds):
    """Stops processes for a while."""
    send(pids, signal.SIGSTOP)
    time.sleep(seconds)
    send(pids, signal.SIGCONT)


def test_a_job_that_is_stopped_as_a_whole_goes_on(job, tmp_path):
    stop(job.alive(), Patience.host_timeout + 1.0)
    # Whoever had given up would have done so by now.
    time.sleep(1.0)
    (tmp_path / "end").touch()
    done = job.wait()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("DONE") == 3


def test_an_agent_that_is_stopped_alone_is_missed(job):
    agents = of_agents(job)
    assert len(agents) == 2
    os.kill(agents[1], signal.SIGSTOP)
    done = job.wait()
    assert done.returncode == 1
    assert "nothing was heard from it for" in done.stderr


def test_agents_end_the_job_of_a_command_that_is_stopped_alone(job):
    os.kill(job.process.pid, signal.SIGSTOP)
    end = time.monotonic() + LIMIT
    while job.alive() != {job.process.pid}:
        assert time.monotonic() < end, job.alive()
        time.sleep(0.05)
