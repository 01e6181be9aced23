import os
import signal
import subprocess
import sys
import time

import pytest

from keras_ring.launcher import job as job_module
from keras_ring.launcher.job import Job

# Killed as soon as there is a directory.
KILLED_EARLY = """
import os, signal, sys
from keras_ring.launcher.job import Job

make = os.mkdir

def make_and_die(path, *args, **kwargs):
    make(path, *args, **kwargs)
    print(oct(os.stat(path).st_mode), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

os.mkdir = make_and_die
Job(1)
"""


def test_a_launcher_that_is_killed_as_it_starts_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EARLY],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.strip() == "0o40700"
    end = time.monotonic() + 8.0
    while os.listdir(tmp_path) and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.listdir(tmp_path)


def test_a_job_without_a_directory_has_no_watchdog(tmp_path, monkeypatch):
    dismissed = []
    dismiss = job_module._Watchdog.dismiss

    def note_and_dismiss(watchdog):
        dismiss(watchdog)
        dismissed.append(watchdog._process.poll())

    monkeypatch.setattr(job_module._Watchdog, "dismiss", note_and_dismiss)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        Job(1)
    assert dismissed == [0]


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
