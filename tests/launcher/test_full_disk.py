"""Files that only tell about a job do not end it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.command import Command

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(120)
SAYS = 'echo "rank $KERAS_RING_RANK"; echo "to err" >&2'


@pytest.fixture
def full_directory(tmp_path):
    """Of output, where each file is on a disk without room."""
    for rank in range(2):
        folder = tmp_path / "logs" / f"rank.{rank}"
        folder.mkdir(parents=True)
        for name in ("stdout", "stderr"):
            (folder / name).symlink_to("/dev/full")
    return tmp_path / "logs"


def _lines(text, words):
    return [line for line in text.splitlines() if words in line]


def _check(done, directory):
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"]
    (told,) = _lines(done.stderr, "cannot write")
    assert f"cannot write {directory}/rank." in told
    assert told.endswith("No space left on device; the job goes on without it")
    (others,) = _lines(done.stderr, "not all could be written of")
    assert others.count(f"{directory}/rank.") == 3


@pytest.mark.parametrize("limit", [(), ("--output-max-bytes", "1K")])
def test_copies_of_the_output(full_directory, limit):
    words = ("--output-dir", str(full_directory), *limit)
    command = Command("run", "-np", "2", *words, "--", "sh", "-c", SAYS)
    _check(command.wait(), full_directory)


def test_what_agents_send(full_directory, shell_here):
    # What is not a directory cannot become one.
    (full_directory / "flight").touch()
    words = ["-H", "one:1,two:1", "--rsh", shell_here()]
    words += ["--output-dir", str(full_directory)]
    flights = str(full_directory / "flight" / "there" / "records")
    command = Command(
        *("run", *words, "--", "sh", "-c", SAYS),
        KERAS_RING_FLIGHT_DIRECTORY=flights,
    )
    _check(command.wait(), full_directory)


@pytest.mark.parametrize("shell", [False, True])
def test_the_file_that_standard_output_is(shell_here, shell):
    hosts = ["-H", "one:1,two:1", "--rsh", shell_here()] if shell else []
    words = ["run", *(hosts or ["-np", "2"]), "--", "sh", "-c", SAYS]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "keras_ring", *words],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    (told,) = _lines(done.stderr, "cannot write")
    assert "/dev/full: No space left on device" in told
    assert len(_lines(done.stderr, "to err")) == 1


TIMELINES = """
import os, sys
import keras_ring as kr
kr.init()
path = sys.argv[1]
kr.start_timeline(path)
kr.stop_timeline()
print("trained")
"""


def test_timelines(tmp_path):
    # Neither the parts of the one nor the whole of the other can be written.
    (tmp_path / "t.json.ranks").touch()
    whole = tmp_path / "whole.json"
    whole.mkdir()
    done = Command(
        *("run", "-np", "1", "--timeline", str(tmp_path / "t.json")),
        *("--", sys.executable, "-c", TIMELINES, str(whole)),
    ).wait()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0] trained\n"
    lines = _lines(done.stderr, f"{tmp_path}/t.json.ranks")
    assert ["the job goes on without it" in line for line in lines] == [
        True
    ] * 2
    (told,) = _lines(done.stderr, f"cannot write the timeline {whole}")
    assert f"parts are in {whole}.ranks" in told


def test_what_ranks_of_an_earlier_job_have_left_goes(tmp_path):
    def run(ranks):
        words = ("run", "-np", str(ranks), "--output-dir", str(tmp_path))
        assert Command(*words, "--", "echo").wait().returncode == 0

    run(4)
    (tmp_path / "flight").mkdir()
    records = ("flight.0.json", "flight.3.12.json", "flight.1.12.set.3.json")
    for name in (*records, "of the user.json"):
        (tmp_path / "flight" / name).touch()
    (tmp_path / "rank.3" / "of the user").touch()
    (tmp_path / "rank.x").mkdir()
    run(2)
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"flight"} == {"rank.0", "rank.1", "rank.3", "rank.x"}
    assert os.listdir(tmp_path / "rank.3") == ["of the user"]
    assert os.listdir(tmp_path / "flight") == ["of the user.json"]


def test_a_directory_that_cannot_be_one_is_told_at_once(tmp_path):
    (tmp_path / "file").touch()
    words = ("--output-dir", str(tmp_path / "file"), "--", "true")
    done = Command("run", "-np", "1", *words).wait()
    assert done.returncode == 2
    assert os.strerror(errno.EEXIST) in done.stderr
