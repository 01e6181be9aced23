import os
import subprocess

import pytest

from keras_ring.launcher.job import Job


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
