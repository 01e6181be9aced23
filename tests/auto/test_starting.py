"""`keras-ring run --auto` with the real Keras, up to the job."""

import sys

import pytest

from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(90)
LOOK = """
import os
import keras_ring as kr
from keras_ring.core import arena
path = os.environ.get("PYTHONPATH", "")
if kr.size() == 2:
    print("right", "KERAS_RING_AUTO" in os.environ, "/hook" in path)
# Too late, and TensorFlow's tensors are copied on their way to others.
assert arena.refusal() == ""
"""


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (("--auto",), "import keras"),
        (("--auto",), "import tensorflow"),
        # It starts by itself, and is not waited for.
        (("--auto",), "import keras_ring; keras_ring.init()"),
        ((), "import keras_ring.auto"),
    ],
)
def test_ranks_meet(tmp_path, options, first):
    script = tmp_path / "train.py"
    script.write_text(f"{first}\n{LOOK}")
    command = Command(
        *("run", "-np", "2", *options, "--stdout", "all", "--"),
        *(sys.executable, str(script)),
    )
    try:
        done = command.wait()
    finally:
        assert command.wait_until_gone(10.0) == set()
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] right False False" for rank in (0, 1)
    ]
