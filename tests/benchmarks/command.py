"""Runs programs of this checkout as a user does, with a deadline."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*words, deadline=120.0):
    """Runs `python WORDS` in the checkout; returns what came of it."""
    return run_command([sys.executable, *map(str, words)], deadline=deadline)


def run_command(command, *, deadline=120.0):
    """Runs a command in the checkout; returns what came of it.

    The deadline is hard: `subprocess.run` kills, and the launcher's watchdog
    ends the ranks.
    """
    scale = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
    path = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=deadline * scale,
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
