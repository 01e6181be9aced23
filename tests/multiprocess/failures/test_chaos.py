"""Random faults during training: a few of `tests.multiprocess.failures.chaos`.

In a process that imports TensorFlow once and forks all ranks.
"""

import os
import subprocess
import sys

import pytest

from tests import tiers


@pytest.mark.long("faults")
@pytest.mark.timeout(240)
def test_random_faults_during_training():
    scale = os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1")
    command = [sys.executable, "-m", "tests.multiprocess.failures.chaos"]
    count = str(tiers.amount(4, 12))
    done = subprocess.run(
        [*command, "--count", count, "--seed", str(tiers.seed(5))],
        capture_output=True,
        text=True,
        timeout=200 * float(scale),
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"ended rightly: {count}" in done.stdout
