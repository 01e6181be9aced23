import json
import os
import stat
import subprocess
import sys

import pytest

from keras_ring.protocol import error_file

PROGRAM = """
import atexit, sys
sys.excepthook = lambda *error: print("previous hook", file=sys.stderr)
from keras_ring.protocol import error_file
error_file.install()
error_file.install()
assert error_file.last_exception() == ""
atexit.register(lambda: print("at exit:", error_file.last_exception()))
try:
    raise KeyError("inner")
except KeyError as inner:
    raise ValueError("two\\nlines") from inner
"""


def _run(environment):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_a_fatal_exception_is_written_once_and_told_at_exit(tmp_path):
    path = tmp_path / "error.json"
    done = _run({"KERAS_RING_ERROR_FILE": str(path), "KERAS_RING_RANK": "3"})
    assert done.returncode == 1
    assert done.stdout == "at exit: ValueError: two lines\n"
    assert done.stderr == "previous hook\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = json.loads(path.read_text())
    assert record["rank"] == 3
    assert record["type"] == "ValueError"
    assert record["message"] == "two\nlines"
    assert "KeyError: 'inner'" in record["traceback"]
    error = error_file.read(path)
    assert error.chain == ("ValueError", "KeyError")
    assert error.time == record["time"]


@pytest.mark.parametrize("planted", ["file", "link"])
def test_what_was_planted_there_is_not_written_to(tmp_path, planted):
    path, part = tmp_path / "error.json", tmp_path / "error.json.part"
    other = tmp_path / "other"
    other.write_text("other")
    if planted == "link":
        part.symlink_to(other)
    else:
        part.touch()
        part.chmod(0o666)
    _run({"KERAS_RING_ERROR_FILE": str(path)})
    assert error_file.read(path).type == "ValueError"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert other.read_text() == "other"


def test_files_are_private_whatever_the_umask(tmp_path):
    path = tmp_path / "error.json"
    before = os.umask(0)
    try:
        _run({"KERAS_RING_ERROR_FILE": str(path)})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_file_or_a_place_for_it(tmp_path):
    assert _run({}).stderr == "previous hook\n"
    done = _run({"KERAS_RING_ERROR_FILE": str(tmp_path / "no" / "file")})
    assert "cannot write" in done.stderr
    assert "previous hook" in done.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"type": 1}', "\0"])
def test_a_broken_file_is_no_error(tmp_path, text):
    (tmp_path / "e").write_text(text)
    assert error_file.read(tmp_path / "e") is None
    assert error_file.read(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "kind, message, is_told",
    [
        ("UnavailableError", "no matter what", True),
        # Of compiled functions.
        ("InternalError", "lost rank 1 (host a, pid 2): it closed", True),
        ("InternalError", "[x] the job is over: rank 2 ended with E", True),
        # Of a job that does not start.
        ("StartError", "UNAVAILABLE: lost rank 1 (host a, pid 2) while", True),
        ("StartError", "rank 1 (host a, pid 2) could not start: why", True),
        ("StartError", "lost ranks 8-15, 17 (9 ranks, on a) while", True),
        ("StartError", "why", False),
        ("InternalError", "XLA has no such instruction", False),
        ("ValueError", "I have lost rank and file", False),
    ],
)
def test_an_error_that_only_tells_of_a_lost_peer(kind, message, is_told):
    error = error_file.RankError(kind, message, 0.0, chain=(kind,))
    assert error.peer_lost is is_told


def test_the_exception_of_a_forked_process_is_not_the_ranks(tmp_path):
    path = tmp_path / "error.json"
    program = PROGRAM.replace(
        "try:", "if os.fork():\n    os.wait()\n    sys.exit()\ntry:", 1
    )
    done = subprocess.run(
        [sys.executable, "-c", "import os" + program],
        env={"KERAS_RING_ERROR_FILE": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["at exit: ", "at exit: "]
    # It is told as ever.
    assert done.stderr == "previous hook\n"
    assert not path.exists()


LOST = """
import sys
from keras_ring.protocol import error_file
if sys.argv[1] == "hooked":
    sys.excepthook = lambda *error: print("previous hook", file=sys.stderr)
error_file.install()
class UnavailableError(Exception): pass
raise UnavailableError("lost rank 1 (host a, pid 2): it closed")
"""


@pytest.mark.parametrize("hooked", ["hooked", ""])
@pytest.mark.parametrize("launched", [True, False])
def test_a_lost_peer_is_one_line_where_a_launcher_tells_the_cause(
    tmp_path, launched, hooked
):
    path = tmp_path / "error.json"
    done = subprocess.run(
        [sys.executable, "-c", LOST, hooked],
        env={"KERAS_RING_ERROR_FILE": str(path)} if launched else {},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    if hooked:
        assert done.stderr == "previous hook\n"
    elif launched:
        assert done.stderr == (
            "UnavailableError: lost rank 1 (host a, pid 2): it closed"
            " (<string>, line 8)\n"
        )
    else:
        assert "Traceback" in done.stderr
    if launched:
        assert "Traceback" in error_file.read(path).traceback


def test_an_exception_that_was_caught_does_not_replace_another(
    tmp_path, monkeypatch
):
    path = tmp_path / "error.json"
    monkeypatch.setenv("KERAS_RING_ERROR_FILE", str(path))
    monkeypatch.setenv("KERAS_RING_RANK", "1")
    first = error_file.RankError("E", "first", 1.0, ("E",), "t", caught=True)
    error_file.write_caught(first)
    assert error_file.read(path) == first
    second = error_file.RankError("E", "second", 1.0, caught=True)
    error_file.write_caught(second)
    assert error_file.read(path) == first


def test_who_has_started(tmp_path, monkeypatch):
    path = tmp_path / "rank.3.error.json"
    error_file.mark_started()
    monkeypatch.setenv("KERAS_RING_ERROR_FILE", str(path))
    assert not error_file.has_started(path)
    error_file.mark_started()
    assert error_file.has_started(path)
    assert error_file.read(path) is None
