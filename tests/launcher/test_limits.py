"""Limits of the system, and what a command says of them."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from keras_ring.launch import directories, open_files
from keras_ring.launch.usage import UsageError

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(240)


def _run(*words, soft=None, hard=None, cwd=None, verb="run", **environment):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return subprocess.run(
        [sys.executable, "-m", "keras_ring", verb, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=cwd,
        preexec_fn=limit if soft else None,
        capture_output=True,
        text=True,
        timeout=200,
    )


HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# A shell, which says what it got.
SAYS = ("--", "sh", "-c", "ulimit -n")


@pytest.mark.parametrize("kept", [False, True])
def test_more_ranks_than_open_files(tmp_path, kept):
    files = ["--output-dir", str(tmp_path)] if kept else []
    done = _run("-np", "24", *files, *SAYS, soft=48, hard=HARD)
    assert done.returncode == 0, done.stderr
    shown = sorted(done.stdout.splitlines())
    assert shown == sorted(f"[{rank}] 48" for rank in range(24))


def test_agents_raise_it_too(shell_here):
    hosts = ["-H", "localhost:16,two:16", "--rsh", shell_here()]
    done = _run(*hosts, *SAYS, soft=40, hard=HARD)
    assert done.returncode == 0, done.stderr
    shown = sorted(done.stdout.splitlines())
    # Those of the first host have that of the command.
    assert [line for line in shown if line.endswith(" 40")] == sorted(
        f"[{rank}] 40" for rank in range(16)
    )
    assert len(shown) == 32


def test_a_check_of_more_hosts_than_open_files(shell_here):
    names = ["localhost", *(f"host-{index}" for index in range(9))]
    words = ["-H", ",".join(names), "--rsh", shell_here()]
    done = _run(*words, soft=32, hard=HARD, verb="check")
    assert done.returncode == 0, done.stderr
    assert "a job can run on these hosts" in done.stdout
    done = _run(*words, soft=32, hard=32, verb="check")
    assert done.returncode == 2
    assert "may have 32 files open, and 10 hosts need" in done.stderr


@pytest.mark.long("launcher-kills")
def test_300_ranks_and_256_files():
    done = _run("-np", "300", "--", "true", soft=256, hard=HARD)
    assert done.returncode == 0, done.stderr


def test_a_hard_limit_is_told_in_one_line():
    done = _run("-np", "40", *SAYS, soft=64, hard=64)
    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if "error" in each]
    assert "may have 64 files open, and 40 ranks on this host need 1" in line
    assert "ulimit -Hn" in line
    assert "Traceback" not in done.stderr


def test_the_limit_comes_back():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
        with open_files.room(ranks=100) as soft:
            raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert (soft, raised >= 300) == (128, True)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 128
        with open_files.room(ranks=1) as soft:
            assert soft is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("hosts", [["-np", "1"], ["-H", "one:1,two:1"]])
def test_no_temporary_directory(tmp_path, hosts, monkeypatch):
    # Of what could be one, the working directory is the last.
    program = """
import sys, tempfile
tempfile._get_default_tempdir = lambda: tempfile._no()
def no():
    raise FileNotFoundError(2, "No usable temporary directory found in []")
tempfile._no = no
from keras_ring.launch.cli.cli import main
sys.exit(main(sys.argv[1:]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "run", *hosts, "--", "true"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "set TMPDIR to one that" in line


def test_a_working_directory_that_is_gone(tmp_path):
    program = """
import os, sys
from keras_ring.launch.cli.cli import main
os.mkdir(sys.argv[1])
os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""

    def run(*words):
        return subprocess.run(
            [sys.executable, "-c", program, tmp_path / "gone", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    for words in (
        ("run", "-H", "one:1,two:1", "--", "true"),
        ("run", "-np", "1", "--output-dir", "logs", "--", "true"),
        ("run", "-np", "1", "--timeline", "t.json", "--", "true"),
        ("check", "-H", "one:1,two:1"),
    ):
        done = run(*words)
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert "the working directory is gone" in line
    # Nobody needs it here.
    assert run("run", "-np", "1", "--", "true").returncode == 0


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert directories.absolute("a/../b") == tmp_path / "b"
    assert directories.absolute("/a/./b") == Path("/a/b")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert directories.absolute("/a") == Path("/a")
    with pytest.raises(UsageError, match="is gone"):
        directories.absolute("a")
