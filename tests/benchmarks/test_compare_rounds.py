"""How `compare.py` runs systems: in turn, with deadlines, whatever they do."""

import os
import sys
import time

import pytest

from benchmarks.comparing import processes, rounds
from benchmarks.comparing.plan import Plan
from keras_ring.bench.case import Case
from keras_ring.bench.measure import Budget
from keras_ring.bench.record import Record

# Does as `peer_main` does, without a job.
PEER = """
import json, os, sys, time
sys.path.insert(0, os.environ["ROOT"])
from keras_ring.bench.record import Record
task = json.loads(open(sys.argv[1]).read())
with open(sys.argv[2], "a") as results:
    for case in task["cases"]:
        made = Record(system="?", version="1", size=2, case=case["name"],
                      num_bytes=4, num_tensors=1, dtype="float32", op="Sum",
                      wire_bytes=4,
                      times_us=(1.0,), cpu_us=1.0, memory_extra_bytes=0)
        print(json.dumps(made.to_dict()), file=results, flush=True)
        exec(os.environ.get("AFTER_EACH", ""))
"""
CASES = {"ladder": [Case(name="a", shapes=((1,),))]}
CASES["steps"] = [Case(name="b", shapes=((1,),))]


def peer(name, after_each=""):
    environment = {"AFTER_EACH": after_each, "ROOT": os.getcwd()}
    command = (sys.executable, "-c", PEER)
    return Plan(name=name, command=command, environment=environment)


def run(*plans, count=1, deadline=60.0):
    return rounds.run_rounds(
        list(plans), CASES, Budget(), rounds=count, deadline=deadline
    )


def test_in_turn(capsys):
    records, failures = run(peer("a"), peer("b"), count=3)
    assert failures == []
    order = [(record.system, record.case) for record in records]
    # Each system has its two cases, and another one begins each round.
    assert [name for name, case in order if case == "a"] == list("abbaab")
    assert all(case == "ab"[i % 2] for i, (_, case) in enumerate(order))
    assert isinstance(records[0], Record)
    assert "round 3 of 3: b" in capsys.readouterr().err


def test_a_failure_ends_nothing_and_keeps_what_was_measured():
    bad = peer("bad", "print('Error: no ' + 'luck'); sys.exit(3)")
    records, failures = run(bad, peer("good"))
    assert [(r.system, r.case) for r in records] == [
        *(("bad", "a"), ("good", "a"), ("good", "b"))
    ]
    assert failures == [
        ("bad", "exit code 3: Error: no luck (1 of 2 cases were measured)")
    ]


def test_the_deadline_ends_a_system_and_its_children(tmp_path):
    script = (
        "import os, subprocess, time; "
        "child = subprocess.Popen(['sleep', '60']); "
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); "
        "time.sleep(60)"
    )
    began = time.monotonic()
    reason = processes.run(
        (sys.executable, "-c", script), os.environ, tmp_path, deadline=3.0
    )
    assert time.monotonic() - began < 20
    assert reason == "took more than 3 s"
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 10
    while _runs(pid):
        assert time.monotonic() < end, "the child was left"
        time.sleep(0.02)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_is_not_there(tmp_path):
    reason = processes.run(("/no/such",), os.environ, tmp_path, deadline=3.0)
    assert reason == "/no/such: No such file or directory"


@pytest.mark.parametrize(
    ("stderr", "stdout", "words"),
    [
        ("", "", "it said nothing"),
        ("", "out\n", "out"),
        ("first\nlast\n\n", "out\n", "last"),
        ("ValueError: x\nand so on\n", "", "ValueError: x"),
    ],
)
def test_last_words(tmp_path, stderr, stdout, words):
    (tmp_path / "stderr").write_text(stderr)
    (tmp_path / "stdout").write_text(stdout)
    assert processes.last_words(tmp_path) == words
