"""Runs the examples as a user does."""

import os
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(*command, **options):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        **options,
    )


def last_lines(num_ranks, example, *flags):
    """Runs an example on ranks; returns (value, checksum) by rank."""
    finished = run(
        *("-m", "keras_ring", "run", "-np", num_ranks, "--"),
        *(sys.executable, EXAMPLES / example, *flags),
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    found = re.findall(
        r"rank (\d): test (?:accuracy|loss) ([\d.]+), "
        r"weights sha256 ([0-9a-f]{16})$",
        finished.stdout,
        re.MULTILINE,
    )
    ranks, values, checksums = zip(*found, strict=True)
    assert sorted(ranks) == [str(rank) for rank in range(num_ranks)]
    assert len(set(values)) == len(set(checksums)) == 1, found
    # Nobody but rank 0 shows progress.
    shown = [
        line
        for line in finished.stdout.splitlines()
        if re.search(r"epoch|step", line, re.IGNORECASE)
    ]
    assert shown
    assert all(line.startswith("[0]") for line in shown)
    return float(values[0]), checksums[0]


def check_any_backend(backend, directory, monkeypatch):
    """Trains a model file twice; the second training begins with the first."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    found = []
    for _ in range(2):
        finished = run(
            *("-m", "keras_ring", "run", "-np", 2, "--", sys.executable),
            *(EXAMPLES / "keras_any_backend.py", "--epochs=4"),
            cwd=directory,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        (accuracy,) = re.findall(
            rf"^\[0\] {backend}: test accuracy ([\d.]+)$",
            finished.stdout,
            re.MULTILINE,
        )
        losses = re.findall(r" loss: ([\d.]+)", finished.stdout)
        found.append((float(accuracy), float(losses[0])))
    (_, first), (accuracy, resumed) = found
    assert accuracy > 0.9
    assert resumed < 0.8 * first


_TIMED = """
import numpy as np
from keras_ring import core as kr

kr.init()
for step in range(3):
    kr.allreduce(np.ones(4), name=f"of_step_{step}")
"""


def check_timeline(directory):
    """Records a timeline where only one framework is installed."""
    (directory / "train.py").write_text(_TIMED)
    finished = run(
        *("-m", "keras_ring", "run", "-np", 2, "--timeline", "both.json"),
        *("--", sys.executable, "train.py"),
        cwd=directory,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    recorded = (directory / "both.json").read_text()
    assert all(f"of_step_{step}" in recorded for step in range(3)), recorded
