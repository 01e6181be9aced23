"""The examples run as their first lines say."""

import sys

import pytest

from tests.harness.examples import EXAMPLES, last_lines, run
from tests.tiers import few


@pytest.mark.parametrize(
    "command",
    few(
        [
            ["keras_digits.py"],
            ["tape_digits.py"],
            ["keras_digits.py", "--jit"],
        ],
        "examples",
        keep=2,
    ),
    ids=" ".join,
)
def test_digits(command):
    accuracy, _ = last_lines(2, *command)
    assert accuracy >= 0.95


@pytest.mark.long("examples")
@pytest.mark.parametrize(
    ("example", "least"),
    [
        ("custom_train_step.py", 0.95),
        ("gradient_accumulation.py", 0.95),
        ("mixed_precision.py", 0.95),
        ("sync_batch_norm.py", 0.9),
        ("transfer_learning.py", 0.9),
    ],
)
def test_features(example, least):
    accuracy, _ = last_lines(2, example)
    assert accuracy >= least


@pytest.mark.long("examples")
def test_checkpoint_resume(tmp_path):
    """A run that stops, one that goes on, and one that does neither."""
    example = "checkpoint_resume.py"
    directory = f"--directory={tmp_path / 'backup'}"
    stopped = run(
        *("-m", "keras_ring", "run", "-np", 2, "--", sys.executable),
        *(EXAMPLES / example, directory, "--stop_after=25"),
    )
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.count(": stopped") == 2
    # An epoch has 23 steps; saved after 10 and 20.
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == [
        "step-00000010",
        "step-00000020",
    ]
    resumed = last_lines(2, example, directory)
    plain = last_lines(2, example, f"--directory={tmp_path / 'other'}")
    assert resumed == plain
    assert resumed[0] >= 0.9


def make_text(path):
    words = "the quick brown fox jumps over the lazy dog and then sleeps"
    path.write_text(" ".join(words.split()[i % 12] for i in range(4000)))
    return path


@pytest.mark.long("examples")
def test_shakespeare(tmp_path):
    text = make_text(tmp_path / "text.txt")
    loss, _ = last_lines(
        2, "keras_shakespeare.py", f"--data={text}", "--steps=60"
    )
    # Uniform guesses over its 27 characters would have 3.3.
    assert loss < 1.5


@pytest.mark.long("examples")
def test_without_a_launcher(tmp_path):
    text = make_text(tmp_path / "text.txt")
    finished = run(
        EXAMPLES / "keras_shakespeare.py", f"--data={text}", "--steps=3"
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1].startswith("rank 0: test loss ")


@pytest.mark.parametrize(
    "example",
    few(sorted(path.name for path in EXAMPLES.glob("*.py")), "examples"),
)
def test_help(example):
    finished = run(EXAMPLES / example, "--help")
    assert "keras-ring run -np 2" in finished.stdout
    assert "--seed" in finished.stdout


@pytest.mark.long("examples")
@pytest.mark.parametrize(
    ("flag", "message"),
    [("--data=nowhere.txt", "no file"), ("--data=", "no file")],
)
def test_a_text_that_is_not_there(tmp_path, flag, message):
    finished = run(EXAMPLES / "keras_shakespeare.py", flag, cwd=tmp_path)
    assert finished.returncode == 1
    assert message in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.long("examples")
def test_a_text_that_is_too_short(tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("Too short.")
    finished = run(EXAMPLES / "keras_shakespeare.py", f"--data={text}")
    assert finished.returncode == 1
    assert "too short" in finished.stdout + finished.stderr
