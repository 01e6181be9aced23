"""Random faults during training: a few of `tests.multiprocess.chaos`."""

import os
import random

import pytest

from tests.multiprocess import chaos


@pytest.mark.timeout(240)
def test_random_faults_during_training():
    seed = 5
    random_ = random.Random(seed)
    scale = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
    for _ in range(3):
        fault = chaos.draw(random_)
        print(f"seed {seed}: {fault}")
        assert not chaos.run(fault, scale), fault
