"""Commands whose descriptors 0, 1 and 2 are closed, as by cron or a daemon."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0
ALL_CLOSED = "0<&- 1>&- 2>&-"
pytestmark = pytest.mark.timeout(2 * LIMIT)


def _run(words, redirections):
    """Runs Python with these words; returns its exit code."""
    line = f"exec {shlex.join([sys.executable, *words])} {redirections}"
    return subprocess.run(
        ["sh", "-c", line],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=LIMIT,
    ).returncode


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", ALL_CLOSED])
def test_a_job_of_one_host(tmp_path, closed):
    words = ["-m", "keras_ring", "run", "-np", "2", "--output-dir", tmp_path]
    words += ["--", "sh", "-c", "echo out; echo err >&2"]
    assert _run(map(str, words), closed) == 0
    for rank in range(2):
        for name in ("out", "err"):
            file = tmp_path / f"rank.{rank}" / f"std{name}"
            assert file.read_text() == f"{name}\n"


@pytest.mark.parametrize(
    ("closed", "closed_there"), [("1>&-", ""), (ALL_CLOSED, "2>&-")]
)
def test_a_job_of_several_hosts(tmp_path, shell_here, closed, closed_there):
    words = ["-m", "keras_ring", "run", "-H", "one:1,two:1"]
    words += ["--rsh", shell_here(closed_there), "--output-dir", tmp_path]
    words += ["--", "sh", "-c", "echo out; echo err >&2"]
    assert _run(map(str, words), closed) == 0
    for rank in range(2):
        for name in ("out", "err"):
            file = tmp_path / f"rank.{rank}" / f"std{name}"
            assert file.read_text() == f"{name}\n"


def test_a_function(tmp_path):
    program = f"""
import keras_ring as kr
values = kr.run(lambda: print("out") or 5, np=2, output_dir={str(tmp_path)!r})
assert values == [5, 5]
"""
    assert _run(["-c", program], ALL_CLOSED) == 0
    for rank in range(2):
        assert (tmp_path / f"rank.{rank}" / "stdout").read_text() == "out\n"


def test_what_is_open_stays(tmp_path):
    """And what was closed is inherited open, for programs that look."""
    program = """
import os, subprocess, sys
from keras_ring.protocol import standard_streams
standard_streams.fill_closed()
print("lost")
print("to a file", file=sys.stderr)
assert sys.stdin.read() == ""
for fd in (0, 1):
    assert os.readlink(f"/proc/self/fd/{fd}") == os.devnull
    assert os.get_inheritable(fd)
"""
    file = tmp_path / "err"
    assert _run(["-c", program], f"0<&- 1>&- 2>{file}") == 0
    assert file.read_text() == "to a file\n"


STARTS = """
import os, sys
import keras_ring as kr
kr.init()
where = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
print("goes nowhere")
with open(sys.argv[1] + str(kr.rank()), "w") as file:
    file.write(" ".join(where))
kr.shutdown()
"""


def test_a_rank(tmp_path):
    """Whoever started it (a shell script between) closed them."""
    program = [sys.executable, "-c", STARTS, str(tmp_path / "rank")]
    line = f"exec {shlex.join(program)} {ALL_CLOSED}"
    words = ["-m", "keras_ring", "run", "-np", "2", "--", "sh", "-c", line]
    assert _run(words, "") == 0
    for rank in range(2):
        # Not a socket of the job.
        text = (tmp_path / f"rank{rank}").read_text()
        assert text == " ".join(["/dev/null"] * 3)
