"""Ranks that need time to end, and how they get it."""

import signal
import sys

import pytest

from tests.launcher.command import Command, wait_for_files

pytestmark = pytest.mark.timeout(120)
# Ends some time after a signal; rank 0 at once with an error, if it is to fail.
RANK = """
import os, signal, sys, time
rank, here, seconds = os.environ["KERAS_RING_RANK"], sys.argv[1], sys.argv[2]
stop = []
signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
open(os.path.join(here, rank), "w").close()
while not os.path.exists(os.path.join(here, "1")):
    time.sleep(0.01)
if rank == "0" and sys.argv[3] == "fails":
    sys.exit(3)
while not stop:
    time.sleep(0.01)
time.sleep(float(seconds))
open(os.path.join(here, "saved." + rank), "w").close()
"""


def _run(tmp_path, seconds, *options, fails=False):
    here = tmp_path / "here"
    here.mkdir()
    words = ("run", *options, "--", sys.executable, "-c", RANK)
    last = "fails" if fails else "waits"
    command = Command(*words, str(here), seconds, last)
    if not fails:
        wait_for_files(here, {"0", "1"})
        command.process.send_signal(signal.SIGTERM)
    done = command.wait()
    assert command.wait_until_gone(5.0) == set()
    return done, {path.name for path in here.glob("saved.*")}


@pytest.fixture(params=["here", "hosts"])
def two(request, shell_here):
    """Options for two ranks."""
    if request.param == "here":
        return ("-np", "2")
    return ("-H", "one:1,two:1", "--rsh", shell_here())


def test_ranks_that_are_too_slow_are_named(tmp_path, two):
    done, saved = _run(tmp_path, "60", *two, "--grace-period", "0.5")
    assert saved == set()
    assert done.returncode == 128 + signal.SIGTERM
    assert (
        "ranks 0-1 had to be killed 0.5 s after SIGTERM (--grace-period gives"
        " them more time)"
    ) in done.stderr


def test_ranks_have_the_time_that_they_are_given(tmp_path, two):
    # Beyond the 2 s of a failure.
    grace = ("--failure-wait", "0", "--failure-grace", "never")
    done, saved = _run(tmp_path, "3", *two, *grace, fails=True)
    assert saved == {"saved.1"}
    assert done.returncode == 3
    assert "killed" not in done.stderr


AGENT = """
trap 'sleep 0.3; echo saved; exit 0' TERM
: > "$1/$KERAS_RING_RANK"
while [ ! -e "$1/0" ] || [ ! -e "$1/1" ]; do sleep 0.02; done
# Each is a child of its agent.
kill -TERM $PPID
while :; do sleep 0.02; done
"""


def test_a_signal_to_agents_gives_ranks_their_time(tmp_path, shell_here):
    words = ("run", "-H", "one:1,two:1", "--rsh", shell_here())
    command = Command(*words, "--", "sh", "-c", AGENT, "rank", str(tmp_path))
    done = command.wait()
    assert command.wait_until_gone(5.0) == set()
    assert sorted(done.stdout.splitlines()) == ["[0] saved", "[1] saved"]
    assert done.returncode == 0
    assert "SIGTERM to its agent ends the job" in done.stderr
    assert "ended by SIGTERM" in done.stderr


def test_after_a_failure_ranks_that_are_too_slow_are_named(tmp_path):
    grace = ("--failure-wait", "0", "--failure-grace", "0.5")
    done, saved = _run(tmp_path, "60", "-np", "2", *grace, fails=True)
    assert saved == set()
    assert (
        "rank 1 had to be killed 0.5 s after SIGTERM (--failure-grace gives"
        " them more time)"
    ) in done.stderr
