"""What the command reads from standard input, and ranks as well."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from keras_ring.launch import standard_input
from keras_ring.launch.standard_input import reads_program

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(120)
PROGRAM = """
import os, sys
rank = os.environ["KERAS_RING_RANK"]
print("trained", rank, len(sys.argv))
"""


def _run(*words, given=None, stdin=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "keras_ring", "run", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        input=given,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(params=["here", "hosts"])
def two(request, shell_here):
    """Options for two ranks."""
    if request.param == "here":
        return ("-np", "2")
    return ("-H", "one:1,two:1", "--rsh", shell_here())


def test_a_program_that_a_pipe_brings(two):
    done = _run(*two, "--", sys.executable, "-", given=PROGRAM)
    assert done.returncode == 0, done.stderr
    shown = ["[0] trained 0 1", "[1] trained 1 1"]
    assert sorted(done.stdout.splitlines()) == shown


TRAINS = """
import keras
import numpy as np

model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((8, 1))
model.fit(x, x, batch_size=4, verbose=0)
import keras_ring as kr

print("trained", kr.rank(), kr.size(), int(model.optimizer.iterations))
"""


def test_a_program_of_one_process_that_a_pipe_brings():
    words = ("--auto", "-np", "2", "--", sys.executable, "-")
    done = _run(*words, given=TRAINS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained 0 2 2\n"
    assert "those of the whole batch" in done.stderr


def test_data_of_a_file_is_for_each_and_stays(two, tmp_path):
    path = tmp_path / "data"
    path.write_text("one\ntwo\nthree\n")
    with path.open() as file:
        os.read(file.fileno(), 4)
        done = _run(*two, "--", "cat", stdin=file)
        assert os.read(file.fileno(), 100) == b"two\nthree\n"
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] {word}" for rank in range(2) for word in ("three", "two")
    ]


def test_data_of_a_pipe_is_for_whoever_asks_for_it():
    words = ("-np", "2", "--", "cat")
    done = _run(*words, given="data\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "ranks have none; --stdin all gives it" in done.stderr
    done = _run("--stdin", "all", *words, given="data\n")
    assert sorted(done.stdout.splitlines()) == ["[0] data", "[1] data"]
    assert "ranks have none" not in done.stderr


def test_a_program_that_is_not_there_is_an_error():
    words = ("-np", "2", "--", sys.executable, "-")
    done = _run(*words, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "program from standard input, and there is nothing" in done.stderr
    ours, theirs = pty.openpty()
    try:
        done = _run(*words, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert "and this is a terminal" in done.stderr
    # Who wants no program gets none.
    done = _run("--stdin", "none", *words, stdin=subprocess.DEVNULL)
    assert done.returncode == 0


def test_a_pipe_that_nobody_ends_is_told_and_does_not_hold_others(monkeypatch):
    readable, writable = os.pipe()
    try:
        done = _run("-np", "1", "--", "cat", stdin=readable)
        assert (done.returncode, done.stdout) == (0, "")
        said = []

        def say(text):
            said.append(text)
            os.write(writable, b"late")
            os.close(writable)

        monkeypatch.setattr(standard_input, "_SILENCE", 0.01)
        monkeypatch.setattr(standard_input, "say", say)
        assert standard_input.read(["cat"], "all", readable) == b"late"
        assert said == [
            "--stdin all gives standard input to each rank: waiting for its end"
        ]
    finally:
        os.close(readable)


def test_too_much(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(standard_input, "MOST_BYTES", 3 << 20)
    with open(tmp_path / "data", "wb+") as file:
        file.truncate((3 << 20) + 1)
        assert standard_input.read(["cat"], None, file.fileno()) == b""
        assert "more than 3 MiB, so ranks do not" in capsys.readouterr().err
        for command, option in ((["cat"], "all"), (["python", "-"], None)):
            with pytest.raises(ValueError, match="more than 3 MiB; have ranks"):
                standard_input.read(command, option, file.fileno())


def test_a_value_that_makes_no_sense():
    done = _run("--stdin", "some", "-np", "1", "--", "true")
    assert done.returncode == 2
    assert "--stdin 'some': expected all or none" in done.stderr


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("python -", True),
        ("/opt/bin/python3.11 -u - --epochs 3", True),
        ("python", True),
        ("python -X dev -u", True),
        ("python /dev/stdin", True),
        ("env A=b python -", True),
        ("sh", True),
        ("bash -e", True),
        ("bash -s 1 2", True),
        ("sh -", True),
        ("python train.py", False),
        ("python train.py -", False),
        ("python -c pass", False),
        ("python -m train", False),
        ("python -V", False),
        ("python --version", False),
        ("bash train.sh", False),
        ("bash -ec true", False),
        ("bash --version", False),
        ("cat", False),
        ("cat -", False),
    ],
)
def test_which_commands_read_a_program(command, reads):
    assert reads_program(command.split()) is reads
