"""What a program writes when a rank has failed, as one process writes it."""

import sys

import pytest

from tests.launcher.command import Command

# One rank fails. What is registered before Keras is imported comes last, when
# the job is over for this process; what handles the error comes before.
PROGRAM = """
import atexit, os, pathlib
os.chdir(os.environ["END_FOLDER"])
rank = os.environ["KERAS_RING_RANK"]
def write(name):
    with open(f"{name}.{rank}", "w") as file:
        file.write("whole")
atexit.register(write, "last")
import keras, numpy as np
class Fails(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if rank == "1":
            raise OverflowError("too large")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
try:
    model.fit(np.ones((8, 3)), np.ones((8, 1)), verbose=0, callbacks=[Fails()])
finally:
    write("handled")
"""


@pytest.mark.timeout(120)
def test_a_rank_that_fails_writes_as_one_process(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    command = Command(
        *("run", "-np", "2", "--auto", "--"),
        *(sys.executable, str(program)),
        END_FOLDER=str(tmp_path),
    )
    try:
        done = command.wait()
    finally:
        assert command.wait_until_gone(5.0) == set()
    assert done.returncode != 0
    assert "OverflowError: too large" in done.stderr
    assert "NotInitializedError" not in done.stderr
    for name in ("handled", "last"):
        assert (tmp_path / f"{name}.1").read_text() == "whole", done.stderr
