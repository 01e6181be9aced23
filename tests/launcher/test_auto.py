"""`keras-ring run --auto`, up to where the program imports Keras."""

import json
import sys

import pytest

from keras_ring.launch import auto_hook
from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(60)

PRELUDE = """
import os, sys
rank = int(os.environ["KERAS_RING_RANK"])
"""
# For hosts, of which each has an agent of its own.
ELSEWHERE = """#!/bin/sh
shift
exec sh -c "$*"
"""


@pytest.fixture
def start(tmp_path):
    """Starts a script on two ranks; afterwards nothing may be left."""
    commands = []

    def start_script(text, *options, python=(), where=("-np", "2")):
        script = tmp_path / "rank.py"
        script.write_text(PRELUDE + text)
        program = (sys.executable, *python, str(script))
        commands.append(Command("run", *where, *options, "--", *program))
        return commands[-1]

    yield start_script
    for command in commands:
        assert command.wait_until_gone(5.0) == set()


@pytest.fixture
def hosts(tmp_path):
    """Options by which the ranks are on two hosts, as their launcher sees."""
    shell = tmp_path / "rsh"
    shell.write_text(ELSEWHERE)
    shell.chmod(0o700)
    return ("-H", "host-a:1,host-b:1", "--rsh", str(shell))


def _own(done):
    return [
        line.removeprefix("keras-ring: ")
        for line in done.stderr.splitlines()
        if line.startswith("keras-ring: ")
    ]


TOLD = """
import json
names = ("", "_BATCH", "_LEARNING_RATE", "_WARMUP_EPOCHS")
told = {name: os.environ.get("KERAS_RING_AUTO" + name) for name in names}
first = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
print(json.dumps([told, first]), file=sys.stderr)
"""


def _told(done):
    """Returns what each rank was told."""
    assert done.returncode == 0, done.stderr
    lines = (line.partition("] ") for line in done.stderr.splitlines())
    return [json.loads(text) for _, _, text in lines if text[:2] == "[{"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_ranks_are_told(start, hosts, elsewhere):
    done = start(
        TOLD,
        *("--auto", "--batch", "per-rank", "--scale-learning-rate"),
        *("linear", "--warmup-epochs", "5", "--no-fold"),
        **({"where": hosts} if elsewhere else {}),
    ).wait()
    variables = {
        "": "1",
        "_BATCH": "per-rank",
        "_LEARNING_RATE": "linear",
        "_WARMUP_EPOCHS": "5",
    }
    assert _told(done) == [[variables, auto_hook._DIRECTORY]] * 2


def test_its_value_is_not_the_next_word(start):
    done = start(TOLD, "--auto=explain", "--no-fold").wait()
    assert [told[""] for told, _ in _told(done)] == ["explain"] * 2
    # Here the next word is the program.
    command = Command("run", "-np", "1", "--auto", "true")
    assert command.wait().returncode == 0
    assert command.wait_until_gone(5.0) == set()
    done = start(TOLD, "--auto=on").wait()
    assert done.returncode == 2
    assert "--auto" in done.stderr


def test_without_it_nothing_is_told(start):
    done = start(TOLD, "--no-fold").wait()
    ((told, first), _) = _told(done)
    assert set(told.values()) == {None}
    assert first != auto_hook._DIRECTORY


def test_its_options_without_it(start):
    for words in (
        ("--batch", "per-rank"),
        ("--scale-learning-rate", "sqrt"),
        ("--warmup-epochs", "3"),
    ):
        done = start(TOLD, *words).wait()
        assert (done.returncode, done.stdout) == (2, "")
        text = " ".join(words)
        assert done.stderr == (
            f"keras-ring: error: {text} is for --auto: add --auto\n"
        )


@pytest.mark.parametrize("elsewhere", [False, True])
def test_standard_output_is_what_one_process_writes(start, hosts, elsewhere):
    """A program that prints data for another one goes on doing so."""
    done = start(
        "import json\nprint(json.dumps([rank]))\nprint()",
        "--auto",
        **({"where": hosts} if elsewhere else {}),
    ).wait()
    assert (done.returncode, done.stdout) == (0, "[0]\n\n"), done.stderr


PRINTS = """
print("a line of", rank)
print("an error of", rank, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), {0, 1}),
        (("--stdout", "rank0"), {0}),
        (("--auto",), {0}),
        (("--auto", "--stdout", "all"), {0, 1}),
        (("--auto", "--log-format", "json"), {0}),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_whose_output_is_shown(
    start, hosts, tmp_path, options, shown, elsewhere
):
    """Rank 0's alone of standard output; a file has that of each rank."""
    out = tmp_path / "out"
    done = start(
        PRINTS,
        *(*options, "--output-dir", str(out)),
        **({"where": hosts} if elsewhere else {}),
    ).wait()
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert (f"a line of {rank}" in done.stdout) == (rank in shown)
        assert f"an error of {rank}" in done.stderr
        file = out / f"rank.{rank}" / "stdout"
        assert f"a line of {rank}" in file.read_text()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_last_output_of_a_rank_that_fails(start, hosts, elsewhere):
    """That of its standard output, too, which was not shown before."""
    done = start(
        'print("last words of", rank)\nsys.exit(7 if rank else 0)',
        "--auto",
        **({"where": hosts} if elsewhere else {}),
    ).wait()
    assert done.returncode == 7
    assert done.stdout == "last words of 0\n"
    assert "  | last words of 1" in _own(done)


def test_a_program_without_keras(start):
    done = start("", "--auto", "--threads", "0").wait()
    assert done.returncode == 0
    assert _own(done) == [
        "--auto did nothing, and these were 2 programs, each on its own: no"
        " rank has imported Keras or TensorFlow in a Python that heeds"
        " PYTHONPATH, by which --auto starts (docs/launching.md)"
    ]
    assert start("", "--auto", where=("-np", "1")).wait().stderr == ""


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_knows_no_hook(start, option):
    # Not by the name of the hook, which -S does not load, but by what it adds.
    look = "print([type(each).__name__ for each in sys.meta_path])"
    assert "_Finder" in start(look, "--auto").wait().stdout
    done = start(look, "--auto", "--threads", "0", python=(option,)).wait()
    assert "_Finder'" not in done.stdout.replace("_EditableFinder", "")
    assert _own(done) == [
        "--auto did nothing, and these were 2 programs, each on its own: with"
        f" {option}, Python ignores what --auto puts before a program"
        " (PYTHONPATH); leave it out, or begin the program with `import"
        " keras_ring.auto`"
    ]


def test_a_job_of_a_rank_is_another_program(start):
    done = start(
        """
import subprocess
code = "import os; print('inner', os.environ.get('KERAS_RING_AUTO'))"
code += "; print('path', os.environ.get('PYTHONPATH'))"
words = [sys.executable, "-m", "keras_ring", "run", "-np", "1", "--"]
subprocess.run([*words, sys.executable, "-c", code], check=True)
""",
        "--auto",
        where=("-np", "1"),
    ).wait()
    assert "inner None" in done.stdout
    assert "path" in done.stdout
    assert auto_hook._DIRECTORY not in done.stdout
