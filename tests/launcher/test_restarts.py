"""`keras-ring run --restarts` starts a job again that a rank has ended."""

import os
import signal
import sys

import pytest

from keras_ring.launch.restarts import parse_restarts
from keras_ring.launch.usage import UsageError
from tests.launcher.command import Command, wait_for_files

pytestmark = pytest.mark.timeout(90)

# Fails as often as it is told to, each time in another way than at the start.
PROGRAM = """
import os, signal, sys, time
from keras_ring import core
number = int(os.environ.get("KERAS_RING_RESTART", "0"))
failures, folder = int(sys.argv[1]), sys.argv[2]
if len(sys.argv) > 3:
    raise SystemExit(3)
core.init()
everyone = core.allgather_object((number, os.environ["KERAS_RING_JOB_KEY"]))
assert len(set(everyone)) == 1
if core.rank() == 0:
    print("start", number, "of", core.size(), "ranks", flush=True)
    open(os.path.join(folder, f"start-{number}"), "w").close()
if number < failures and core.rank() == 1:
    while not os.path.exists(os.path.join(folder, f"start-{number}")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
if failures < 0:
    time.sleep(60)
core.allgather_object(0)
core.shutdown()
"""


@pytest.fixture
def start(tmp_path):
    """Starts the program; afterwards nothing may be left."""
    commands = []
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)

    def start_command(*options, failures=0, more=(), **environment):
        words = ("run", *options, "--", sys.executable, str(script))
        rest = (str(failures), str(tmp_path), *more)
        commands.append(Command(*words, *rest, **environment))
        return commands[-1]

    yield start_command
    for command in commands:
        assert command.wait_until_gone(5.0) == set()


def test_a_failed_job_is_started_again(start, tmp_path):
    out = tmp_path / "out"
    done = start(
        *("-np", "2", "--restarts", "3", "--output-dir", str(out)),
        *("--timeline", str(tmp_path / "t.json.gz")),
        failures=2,
    ).wait()
    assert done.returncode == 0, done.stderr
    # Ranks know the variable that tells how often.
    assert "without effect" not in done.stderr
    assert [line for line in done.stdout.splitlines() if "start" in line] == [
        f"[0] start {number} of 2 ranks" for number in range(3)
    ]
    told = [line for line in done.stderr.splitlines() if "again" in line]
    assert told == [
        "keras-ring: starts the job again: restart 1 of 3",
        "keras-ring: starts the job again: restart 2 of 3",
    ]
    # Each start has files of its own.
    for name, number in (
        ("out", 0),
        ("out.restart-1", 1),
        ("out.restart-2", 2),
    ):
        text = (tmp_path / name / "rank.0" / "stdout").read_text()
        assert text == f"start {number} of 2 ranks\n"
    assert os.listdir(out / "flight")
    assert not (tmp_path / "out.restart-2" / "flight").exists()
    assert (tmp_path / "t.restart-2.json.gz").exists()


def test_the_last_failure_ends_the_job(start):
    done = start("-np", "2", "--restarts", "1", failures=5).wait()
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stdout.count("start") == 2
    assert done.stderr.count("was killed by SIGKILL") == 2
    assert done.stderr.count("again: restart") == 1


def test_a_program_that_never_began_is_not_started_again(start):
    done = start("-np", "2", "--restarts", "5", more=["wrong"]).wait()
    assert done.returncode == 3
    assert "restart" not in done.stderr
    assert (
        "not started again, as no rank had called keras_ring.init()"
        in done.stderr
    )


def test_a_job_that_is_stopped_is_not_started_again(start, tmp_path):
    command = start("-np", "2", "--restarts", "5", failures=-1)
    wait_for_files(tmp_path, {"start-0"})
    command.process.send_signal(signal.SIGTERM)
    done = command.wait()
    assert done.returncode == 128 + signal.SIGTERM
    assert "again" not in done.stderr


def test_a_job_of_hosts_is_started_again(start, shell_here):
    done = start(
        *("-H", "one:1,two:1", "--rsh", shell_here(), "--restarts", "1"),
        # A rank of another job in which this command runs.
        failures=1,
        KERAS_RING_RESTART="7",
    ).wait()
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "start" in line] == [
        "[0] start 0 of 2 ranks",
        "[0] start 1 of 2 ranks",
    ]


@pytest.mark.parametrize("text", ["-1", "many", "1.5", "10000000"])
def test_a_wrong_number_is_told(text):
    with pytest.raises(UsageError, match="expected a number from 0"):
        parse_restarts(text)
