"""A part of the table of faults: of `python -m tests.multiprocess.faults`.

In one process that imports TensorFlow once and forks the ranks of all cases.
"""

import os
import subprocess
import sys

import pytest

from tests import tiers

# Each fault and each moment, in some mode, with as few ranks as will do.
CASES = (
    "SIGKILL+negotiation+eager+ring",
    "SIGKILL+shutdown+shm",
    "SIGSEGV+collective+graph+ring",
    "SIGSTOP+collective+session+shm",
    "exit+callback+session+ring",
    "exit+collective+eager+shm",
    "oom+negotiation+session+shm",
    "closed network+collective+eager+ring",
    "half-open+negotiation+eager",
    "exception+negotiation+eager+shm",
    "exception+init+ring",
    "pause+collective+eager+ring",
    "busy+negotiation+eager+shm",
)


# Without a part pulled: one of each way to be lost.
FEW = CASES[::3]


@pytest.mark.longer("faults")
@pytest.mark.timeout(300)
def test_each_fault_is_named_in_time():
    scale = os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1")
    cases = CASES if tiers.pulled("faults") else FEW
    only = [word for case in cases for word in ("--only", case)]
    command = [sys.executable, "-m", "tests.multiprocess.faults", *only]
    done = subprocess.run(
        [*command, "--seed", str(tiers.seed(2)), "--largest", "4"],
        capture_output=True,
        text=True,
        timeout=240 * float(scale),
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(cases)} cases, 0 with faults" in done.stdout
