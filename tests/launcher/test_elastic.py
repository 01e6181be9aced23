"""`keras-ring run --elastic`, of programs that do little."""

import os
import signal
import subprocess
import sys

import pytest

from keras_ring.launch.plan import make_plan
from keras_ring.launch.request import RunRequest
from keras_ring.launch.usage import UsageError
from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(120)

# Sums until all ranks have ended as they were told to: "1:KILL 2:STOP".
PROGRAM = """
import os, signal, sys, time
import numpy as np
from keras_ring import core
core.init()
rank = core.rank()
ends = dict(word.split(":") for word in sys.argv[1].split())
names = set(core.allgather_object(rank))
for number in range(int(sys.argv[2])):
    if number == 5 and str(rank) in ends:
        how = ends[str(rank)]
        if how.isdecimal():
            os._exit(int(how))
        if how == "RAISE":
            raise RuntimeError("a mistake of rank %d" % rank)
        os.kill(os.getpid(), getattr(signal, "SIG" + how))
    time.sleep(0.02)
    core.allreduce(np.ones(1, np.float32), core.Sum, name="sum")
print("was", rank, "is", core.rank(), "of", core.size(), flush=True)
core.shutdown()
"""


def run(tmp_path, ends, *, ranks=3, steps=40, options=(), **environment):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    elastic = options or ("--elastic",)
    words = ("run", *elastic, "-np", str(ranks), "--", sys.executable)
    command = Command(*words, str(script), ends, str(steps), **environment)
    done = command.wait()
    assert command.wait_until_gone(5.0) == set()
    print(done.stdout, done.stderr)
    return done


def ends_of(done):
    return sorted(
        line.partition("was ")[2]
        for line in done.stdout.splitlines()
        if "was " in line
    )


def test_goes_on_without_a_killed_rank(tmp_path):
    done = run(tmp_path, "1:KILL")
    assert done.returncode == 0
    assert ends_of(done) == ["0 is 0 of 2", "2 is 1 of 2"]
    assert "lost rank 1; 2 ranks go on" in done.stderr


def test_goes_on_after_a_crash_of_rank_0(tmp_path):
    done = run(tmp_path, "0:ABRT")
    assert done.returncode == 0
    assert ends_of(done) == ["1 is 0 of 2", "2 is 1 of 2"]


def test_a_rank_that_does_not_answer_is_killed(tmp_path):
    limits = {"KERAS_RING_HEARTBEAT_TIMEOUT": "2"}
    done = run(tmp_path, "2:STOP", steps=20, **limits)
    assert done.returncode == 0
    assert ends_of(done) == ["0 is 0 of 2", "1 is 1 of 2"]
    assert "rank 2 does not answer" in done.stderr
    assert "lost rank 2; 2 ranks go on" in done.stderr


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [
        ("1:3", 3, "rank 1 (pid"),
        ("1:RAISE", 1, "RuntimeError: a mistake of rank 1"),
    ],
)
def test_the_programs_own_failure_ends_the_job(tmp_path, ends, code, words):
    done = run(tmp_path, ends, steps=3000)
    assert done.returncode == code
    assert words in done.stderr
    assert "go on" not in done.stderr
    assert ends_of(done) == []


def test_the_last_rank_may_not_be_lost(tmp_path):
    done = run(tmp_path, "0:KILL 1:KILL", ranks=2)
    assert done.returncode == 128 + signal.SIGKILL
    assert "was killed by SIGKILL" in done.stderr


def test_a_program_of_a_rank_is_a_job_of_its_own():
    # It inherits the variable, but not the socket.
    own = {"KERAS_RING_MEMBERSHIP_FD": "99", "KERAS_RING_SIZE": "1"}
    program = "from keras_ring import core; core.init(); print(core.size())"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr


def test_ends_with_fewer_ranks_than_it_is_to_have(tmp_path):
    done = run(tmp_path, "1:KILL", options=("--min-np", "2"))
    assert done.returncode == 0
    assert ends_of(done) == ["0 is 0 of 2", "2 is 1 of 2"]
    done = run(tmp_path, "1:KILL", options=("--min-np", "3"))
    assert done.returncode == 128 + signal.SIGKILL
    assert ends_of(done) == []
    assert "rank 1 (pid" in done.stderr
    assert (
        "rank 1 was killed, and 2 of 3 ranks are left, fewer than --min-np 3"
    ) in done.stderr


@pytest.mark.parametrize("text", ["0", "4", "two"])
def test_a_number_of_ranks_that_a_job_cannot_have(text):
    request = RunRequest(command=("true",), num_ranks=3, min_ranks=text)
    with pytest.raises(UsageError, match=f"--min-np {text}: expected a number"):
        make_plan(request, {"PATH": "/usr/bin"})


def test_several_hosts_are_refused():
    request = RunRequest(command=("true",), hosts="one:1,two:1", elastic=True)
    with pytest.raises(UsageError, match="--elastic: only the ranks of one"):
        make_plan(request, {"PATH": "/usr/bin"})
