"""Runs tests that failed once more, alone: is it the change, or the machine?

A test that a busy machine broke passes by itself, and one that the change broke
does not. Each runs twice, so that one of two does not go through by luck. Both
outputs are kept: a test that is unsteady has a cause, in itself or in what it
tests (docs/testing.md).
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.tiers.changes import ROOT
from tests.tiers.lanes import Lane

RUNS = 2
# More than so many are not the machine's fault, and are not run again.
MOST = 12
# Seconds of one test. Its own limits are shorter.
_LIMIT = 600


@dataclass(frozen=True)
class Failure:
    """A test that has failed.

    Args:
        lane: Where.
        name: As pytest or ctest calls it.
        output: What it printed.
    """

    lane: Lane
    name: str
    output: str


def failures_of_pytest(lane: Lane, file: Path) -> list[Failure]:
    """Returns what a run of pytest has written of what failed."""
    if not file.exists():
        return []
    lines = map(json.loads, file.read_text().splitlines())
    # A test that fails and cannot be torn down either is there twice.
    outputs: dict[str, str] = {}
    for line in lines:
        before = outputs.get(line["test"], "")
        outputs[line["test"]] = before + line["output"] + "\n"
    return [Failure(lane, name, text) for name, text in outputs.items()]


def failures_of_ctest(lane: Lane) -> list[Failure]:
    """Returns what the last run of ctest says of what failed."""
    directory = ROOT / lane.again[0] / "Testing/Temporary"
    failed = directory / "LastTestsFailed.log"
    if not failed.exists():
        return []
    log = (directory / "LastTest.log").read_text(errors="replace")
    names = [line.partition(":")[2] for line in failed.read_text().splitlines()]
    return [Failure(lane, name, _section(log, name)) for name in names]


def _section(log: str, name: str) -> str:
    """Returns the part of ctest's log that is about one test."""
    begin = re.search(rf"^\d+/\d+ Testing: {re.escape(name)}$", log, re.M)
    if begin is None:
        return log
    end = re.search(r"^\d+/\d+ Testing: ", log[begin.end() :], re.M)
    return log[begin.start() : begin.end() + end.start() if end else None]


def passes(failure: Failure, folder: Path) -> bool:
    """Runs a test again, alone. Returns whether it passed each time.

    Args:
        failure: The test.
        folder: Where its outputs are kept.
    """
    name = re.sub(r"[^\w.-]+", "_", failure.name)[-150:]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.failed.txt").write_text(failure.output)
    for run in range(1, RUNS + 1):
        with (folder / f"{name}.again{run}.txt").open("w") as output:
            if not _runs(failure, output):
                return False
    return True


def _runs(failure: Failure, output) -> bool:
    try:
        done = subprocess.run(
            _command(failure),
            cwd=ROOT,
            env={**os.environ, **failure.lane.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _command(failure: Failure) -> list[str]:
    again = failure.lane.again
    if failure.lane.kind == "pytest":
        return [*again, "-p", "no:cacheprovider", failure.name]
    only = f"^{re.escape(failure.name)}$"
    ctest = str(ROOT / ".venv/bin/ctest")
    command = [ctest, "--test-dir", again[0], "-R", only]
    return [*command, "--no-tests=error", "--output-on-failure"]
