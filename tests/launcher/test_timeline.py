"""`keras-ring run --timeline`: one file, however the job ends.

The ranks are programs that write parts as the core does, without a job.
"""

import os
import subprocess
import sys

import pytest

from keras_ring.observe.timeline.merge import read
from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(60)

RANK = """
import json, os, signal, struct, sys, time
from pathlib import Path
rank, size = (int(os.environ["KERAS_RING_" + x]) for x in ("RANK", "SIZE"))
parts = Path(os.environ["KERAS_RING_TIMELINE"] + ".ranks")
parts.mkdir(exist_ok=True)
now = time.monotonic_ns()
told = {"type": "rank", "format": "keras_ring-timeline", "version": 1}
told |= {"rank": rank, "size": size, "host": "here", "pid": os.getpid()}
with open(parts / f"rank.{rank}.jsonl", "w") as file:
    file.write(json.dumps(told) + "\\n")
with open(parts / f"rank.{rank}.spans", "wb") as file:
    for step in range(STEPS):
        file.write(
            struct.pack(
                "<BBHIIiQqqq", 0, 16, 0, 1, 0, -1, 0, now, now + 5, step
            )
        )
        now += 9
    file.write(b"torn")
"""


@pytest.fixture
def start(tmp_path):
    commands = []

    def start_rank(text, *options, steps=3, where=(), **environment):
        script = tmp_path / "rank.py"
        script.write_text(RANK.replace("STEPS", str(steps)) + text)
        words = ("run", *(where or ("-np", "2")), *options, "--")
        command = Command(*words, sys.executable, str(script), **environment)
        commands.append(command)
        return command.wait()

    yield start_rank
    for command in commands:
        assert command.wait_until_gone(5.0) == set()


def steps_of(path):
    return {
        rank.rank: rank.spans["value"].tolist() for rank in read(path).ranks
    }


@pytest.mark.quick
@pytest.mark.parametrize("name", ["t.json", "t.trace"])
def test_a_file_of_all_ranks(start, tmp_path, name):
    path = tmp_path / name
    done = start("", "--timeline", str(path))
    assert done.returncode == 0, done.stderr
    assert steps_of(path) == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert not path.with_name(name + ".ranks").exists()
    (line,) = [x for x in done.stderr.splitlines() if "timeline" in x]
    assert line.startswith(f"keras-ring: timeline in {path}; open it with")
    assert ("chrome://tracing" in line) == (name == "t.json")
    assert "https://ui.perfetto.dev" in line


def test_a_file_of_ranks_that_were_killed(start, tmp_path):
    path = tmp_path / "t.json"
    done = start(
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        KERAS_RING_TIMELINE=os.path.relpath(path),
    )
    assert done.returncode == 128 + 9
    assert f"timeline in {path}; open" in done.stderr
    assert 0 in steps_of(path) or 1 in steps_of(path)


def test_what_a_job_before_has_left_is_removed(start, tmp_path):
    path = tmp_path / "t.json"
    parts = tmp_path / "t.json.ranks"
    parts.mkdir()
    (parts / "rank.1.jsonl").write_text("{}")
    (parts / "rank.1.spans").write_bytes(bytes(range(48)))
    done = start("", "--timeline", str(path), where=("-np", "1"))
    assert done.returncode == 0, done.stderr
    assert steps_of(path) == {0: [0, 1, 2]}


def test_ranks_that_record_nothing(tmp_path):
    path = tmp_path / "t.json"
    command = Command(
        *("run", "-np", "2", "--timeline", str(path), "--", "false")
    )
    done = command.wait()
    assert done.returncode == 1
    assert "there is no timeline: no rank has recorded" in done.stderr
    assert os.listdir(tmp_path) == []
    assert command.wait_until_gone(5.0) == set()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "expected the name of a file"),
        (".", "expected the name of a file"),
        ("no/t.json", "there is no "),
    ],
)
def test_a_file_that_cannot_be(path, why):
    done = Command("run", "-np", "2", "--timeline", path, "--", "true").wait()
    assert done.returncode == 2
    assert f"error: --timeline {path!r}: {why}" in done.stderr


def in_sight(folder):
    return ""


def out_of_sight(folder):
    return f"mount -t tmpfs tmpfs {folder} &&"


def can_hide():
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False)


@pytest.mark.parametrize("view", [in_sight, out_of_sight])
def test_parts_of_other_hosts_come_to_the_launcher(start, tmp_path, view):
    if can_hide().returncode:
        pytest.skip("needs to mount, as root may")
    folder = tmp_path / "out"
    folder.mkdir()
    shell = tmp_path / "rsh"
    shell.write_text(
        f'#!/bin/sh\nshift\nexec unshare --mount sh -c "{view(folder)} $*"\n'
    )
    shell.chmod(0o755)
    path = folder / "t.json"
    done = start(
        "",
        *("--rsh", str(shell), "--timeline", str(path)),
        # More than a pipe takes, and than one piece.
        steps=25_000,
        where=("-H", "host-a:1,host-b:2"),
    )
    assert done.returncode == 0, done.stderr
    steps = list(range(25_000))
    assert steps_of(path) == {0: steps, 1: steps, 2: steps}
    assert os.listdir(folder) == ["t.json"]
