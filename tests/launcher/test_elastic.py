"""`keras-ring run --elastic`, of programs that do little."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

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


# Counts up to a number, and lets in who waits; who comes in is told the count.
# A process that is to join and whose end is "0" ends before it is let in.
GROWING = """
import os, signal, sys, time
import numpy as np
from keras_ring import core
from keras_ring.core import generations
core.init()
was = os.environ.get("KERAS_RING_JOINS_AS") or core.rank()
ends = dict(word.split(":") for word in sys.argv[1].split())
if ends.get(str(was)) == "0":
    raise RuntimeError("a mistake of %s" % was)
joins = generations.is_waiting()
count = np.zeros(1, np.int64)
if joins:
    print("alone", core.rank(), "of", core.size(), flush=True)
    generations.admit()
    count = core.broadcast(count, 0, name="count")
while count < int(sys.argv[2]):
    if str(count[0]) == ends.get(str(was)):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    total = core.allreduce(count, core.Sum, name="sum")
    assert total == count * core.size(), (total, count, core.size())
    count = count + 1
    waiting = np.array([generations.num_waiting()], np.int64)
    if core.allreduce(waiting, core.Max, name="waiting"):
        generations.admit()
        core.broadcast(count, 0, name="count")
print("was", was, "is", core.rank(), "of", core.size(), flush=True)
core.shutdown()
"""


def run(
    tmp_path,
    ends,
    *,
    ranks=3,
    steps=40,
    options=(),
    program=PROGRAM,
    **environment,
):
    script = tmp_path / "program.py"
    script.write_text(program)
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


def test_a_program_that_asks_to_be_trained_unchanged(tmp_path):
    done = run(tmp_path, "", ranks=2, program="import keras_ring.auto")
    assert done.returncode == 1
    assert "AutoError: An elastic job may lose ranks" in done.stderr


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


def test_others_join_in_the_place_of_those_that_are_lost(tmp_path):
    done = run(
        tmp_path,
        "1:20 0:150 3:280",
        steps=400,
        options=("--max-np", "3"),
        program=GROWING,
    )
    assert done.returncode == 0
    assert ends_of(done) == ["2 is 0 of 3", "4 is 1 of 3", "5 is 2 of 3"]
    for number in (3, 4, 5):
        assert f"rank {number} has joined; 3 ranks go on" in done.stderr
    assert done.stdout.count("alone 0 of 1") == 3


def test_one_rank_becomes_three(tmp_path):
    done = run(
        tmp_path,
        "",
        ranks=1,
        steps=300,
        options=("--max-np", "3"),
        program=GROWING,
    )
    assert done.returncode == 0
    assert len(ends_of(done)) == 3
    assert ends_of(done)[0] == "0 is 0 of 3"


def test_too_few_wait_for_others(tmp_path):
    done = run(
        tmp_path,
        "1:20",
        ranks=2,
        steps=60,
        options=("--min-np", "2", "--max-np", "2"),
        program=GROWING,
    )
    assert done.returncode == 0
    assert ends_of(done) == ["0 is 0 of 2", "2 is 1 of 2"]


def test_too_few_do_not_wait_for_ever(tmp_path):
    sizes = ("--min-np", "2", "--max-np", "2")
    # Those that are to join have a mistake.
    done = run(
        tmp_path,
        "1:20 2:0 3:0 4:0",
        ranks=2,
        steps=6000,
        options=sizes,
        program=GROWING,
    )
    assert done.returncode != 0
    assert done.stderr.count("which was to join, exited with code 1") == 3
    why = "fewer than --min-np 2, and those that were to join have failed"
    assert why in done.stderr
    done = run(
        tmp_path,
        "1:20",
        ranks=2,
        steps=6000,
        options=(*sizes, "--elastic-timeout", "0.1"),
        program=GROWING,
    )
    assert done.returncode != 0
    why = "fewer than --min-np 2, and no others have joined in 0.1 s"
    assert why in done.stderr


def test_ranks_may_not_change_too_often(tmp_path):
    done = run(
        tmp_path,
        "1:20 3:100",
        steps=6000,
        options=("--max-np", "3", "--reset-limit", "2"),
        program=GROWING,
    )
    assert done.returncode != 0
    assert "rank 3 has joined" in done.stderr
    why = "changed 3 times, more often than --reset-limit 2 allows"
    assert why in done.stderr
    request = RunRequest(command=("true",), num_ranks=3, reset_limit="-1")
    with pytest.raises(UsageError, match="--reset-limit -1: expected"):
        make_plan(request, {"PATH": "/usr/bin"})


def test_those_that_cannot_join_are_no_failure_of_the_job(tmp_path):
    done = run(
        tmp_path,
        "1:20 3:0 4:0 5:0",
        steps=500,
        options=("--max-np", "3"),
        program=GROWING,
    )
    assert done.returncode == 0
    assert ends_of(done) == ["0 is 0 of 2", "2 is 1 of 2"]
    assert done.stderr.count("RuntimeError: a mistake of") == 3


def test_who_waits_ends_with_the_job(tmp_path):
    done = run(
        tmp_path,
        "",
        ranks=2,
        options=("--max-np", "3"),
        program=PROGRAM.replace(
            "names =", "time.sleep(60 * (core.size() == 1)); names ="
        ),
    )
    assert done.returncode == 0
    assert ends_of(done) == ["0 is 0 of 2", "1 is 1 of 2"]
    assert "which was to join" not in done.stderr


@pytest.mark.parametrize("text", ["0", "4", "two"])
def test_a_number_of_ranks_that_a_job_cannot_have(text):
    request = RunRequest(command=("true",), num_ranks=3, min_ranks=text)
    with pytest.raises(UsageError, match=f"--min-np {text}: expected a number"):
        make_plan(request, {"PATH": "/usr/bin"})


@pytest.mark.parametrize("text", ["2", "4097", "two"])
def test_a_number_of_ranks_that_a_job_cannot_grow_to(text):
    request = RunRequest(command=("true",), num_ranks=3, max_ranks=text)
    with pytest.raises(UsageError, match=f"--max-np {text}: expected a number"):
        make_plan(request, {"PATH": "/usr/bin"})


def test_hosts_have_places_for_those_that_join():
    request = RunRequest(
        command=("true",), hosts="one:2,two:3", num_ranks=2, max_ranks="5"
    )
    plan = make_plan(request, {"PATH": "/usr/bin"})
    assert [each.places for each in plan.host_ranks] == [2, 3]
    assert [len(each.ranks) for each in plan.host_ranks] == [2, 0]
    more = replace(request, max_ranks="6")
    with pytest.raises(UsageError, match="--max-np 6: these hosts have 5 slot"):
        make_plan(more, {"PATH": "/usr/bin"})
    # Without others that join, a host without a rank is of no use.
    plan = make_plan(replace(request, max_ranks=None), {"PATH": "/usr/bin"})
    assert [each.places for each in plan.host_ranks] == [2]


def test_the_numbers_of_ranks_of_a_program_that_tells_hosts():
    request = RunRequest(
        command=("true",), host_discovery_script="printf 'one:2\\ntwo:3\\n'"
    )
    environment = {"PATH": "/usr/bin"}
    for given, first, least, most in (
        ({}, 5, 1, 4096),
        ({"max_ranks": "4"}, 4, 1, 4),
        ({"max_ranks": "9", "min_ranks": "5"}, 5, 5, 9),
        ({"num_ranks": 3, "max_ranks": "9"}, 3, 1, 9),
        ({"num_ranks": 1}, 1, 1, 4096),
    ):
        plan = make_plan(replace(request, **given), environment)
        assert (plan.size, plan.min_size, plan.max_size) == (first, least, most)
        assert plan.host_discovery_script
    for given, error in (
        ({"max_ranks": "few"}, "--max-np few: expected a number"),
        ({"min_ranks": "0"}, "--min-np 0: expected a number"),
        ({"hosts": "three:1"}, "-H or --hostfile, or by --host-discovery"),
        ({"auto": "1"}, "--elastic: a program that --auto"),
    ):
        with pytest.raises(UsageError, match=error):
            make_plan(replace(request, **given), environment)


@pytest.mark.parametrize("options", [{"elastic": True}, {"max_ranks": "2"}])
def test_unchanged_programs_are_refused(options):
    request = RunRequest(command=("true",), num_ranks=2, auto="1", **options)
    with pytest.raises(UsageError, match="--elastic: a program that --auto"):
        make_plan(request, {"PATH": "/usr/bin"})
