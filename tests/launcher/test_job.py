import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_ring.launch import job as job_module
from keras_ring.launch import job_processes
from keras_ring.launch.job import Job

# Killed as soon as there is a directory.
KILLED_EARLY = """
import os, signal, sys
from keras_ring.launch.job import Job

make = os.mkdir

def make_and_die(path, *args, **kwargs):
    make(path, *args, **kwargs)
    print(oct(os.stat(path).st_mode), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

os.mkdir = make_and_die
Job(1)
"""


@pytest.mark.parametrize("name", ["plain", "a space\nand a line"])
def test_a_launcher_that_is_killed_as_it_starts_leaves_nothing(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EARLY],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.strip() == "0o40700"
    end = time.monotonic() + 8.0
    while os.listdir(folder) and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.listdir(folder)


@pytest.mark.parametrize("what", ["directory", "port"])
def test_a_job_that_cannot_begin_leaves_nothing(tmp_path, monkeypatch, what):
    ended = []
    give_up = job_module._Watchdog.give_up

    def give_up_and_look(watchdog):
        give_up(watchdog)
        ended.append(watchdog._process.poll())

    def no_port():
        raise OSError("no port is free")

    monkeypatch.setattr(job_module._Watchdog, "give_up", give_up_and_look)
    folder = tmp_path / "missing" if what == "directory" else tmp_path
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    if what == "port":
        monkeypatch.setattr(job_module.Rendezvous, "on_loopback", no_port)
    with pytest.raises(OSError, match=r"No such file|no port is free"):
        Job(1)
    assert ended == [0]
    assert not os.listdir(tmp_path)


def test_an_error_in_the_launcher_leaves_nothing():
    with pytest.raises(RuntimeError, match="of the launcher"), Job(1) as job:
        rank = job.start(
            0,
            ["sleep", "60"],
            os.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        raise RuntimeError("of the launcher")
    assert not job.directory.exists()
    assert not os.path.exists(f"/proc/{rank.pid}")


def _wait_for_name(pid, name):
    end = time.monotonic() + 30.0
    while Path(f"/proc/{pid}/comm").read_text().strip() != name:
        assert time.monotonic() < end, f"process {pid} is not {name}"
        time.sleep(0.005)


def test_what_holds_memory_is_not_left_behind_by_a_program(tmp_path):
    holder = shutil.copy(shutil.which("sleep"), tmp_path / "kr-holder")
    with Job(1) as job:
        rank = job.start(
            0,
            ["sh", "-c", f"{holder} 60 & sleep 61 & echo $!"],
            os.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        forgotten = int(rank.stdout.readline())
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        assert len(job_processes.find(None, {rank.pid})) == 2
        (held,) = job_processes.find(None, {rank.pid}) - {forgotten}
        # Until then it is a shell.
        _wait_for_name(held, "kr-holder")
        assert job.kill_all() == {forgotten}
        assert job_processes.find(None, {rank.pid}) == set()


def test_the_watchdog_does_no_harm_when_all_is_well():
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        with Job(1) as job:
            rank = job.start(
                0,
                ["true"],
                os.environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
            assert rank.poll() == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_the_watchdog_goes_when_nothing_is_left_to_do(monkeypatch):
    left = []
    with Job(1) as job:
        dismiss = job._watchdog.dismiss

        def look_and_dismiss():
            left.append(job.directory.exists())
            dismiss()

        monkeypatch.setattr(job._watchdog, "dismiss", look_and_dismiss)
    assert left == [False]
