"""The example of docs/auto.md, started as the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "auto.md"


def blocks(kind):
    text = PAGE.read_text()
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def block(kind):
    return blocks(kind)[0]


def started(command, directory):
    done = subprocess.run(
        command,
        cwd=directory,
        shell=True,
        capture_output=True,
        text=True,
        timeout=200,
        env={
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            # As in an environment that is active.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_example_says_and_makes_what_is_shown(tmp_path):
    (tmp_path / "train.py").write_text(block("python script"))
    alone = started("python train.py", tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    done = started(block("sh"), tmp_path)
    said = re.findall(r"^\[\d\] keras_ring: (.*)", done.stderr, re.MULTILINE)
    assert sorted(said) == sorted(block("text").splitlines())
    accuracy = alone.stdout.splitlines()[-1]
    assert accuracy.startswith("accuracy: 0.9")
    # Once, by rank 0.
    last = re.findall(r"^(accuracy: [\d.]+)$", done.stdout, re.MULTILINE)
    assert last == [accuracy]
    assert {path.name for path in tmp_path.iterdir()} == files


def test_a_loop_of_the_programs_own_prints_what_one_process_does(tmp_path):
    (tmp_path / "train.py").write_text(blocks("python script")[1])
    alone = started("python train.py", tmp_path).stdout.splitlines()
    assert len(alone) == 3
    command = "keras-ring run --auto -np 2 -- python train.py"
    done = started(command, tmp_path)
    said = done.stderr
    assert "optimizer Adam of step 'train_step': gradients averaged" in said
    assert "step 'train_step': its batches are divided by rows" in said
    shown = re.findall(r"^(loss .*)$", done.stdout, re.MULTILINE)
    for mine, theirs in zip(shown, alone, strict=True):
        numbers = [
            [float(n) for n in re.findall(r"[\d.]+", line.replace(",", ""))]
            for line in (mine, theirs)
        ]
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)
