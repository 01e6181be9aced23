"""A compiled step fails on one rank: what the others and the user are told."""

import sys

from tests.launcher.command import Command

PROGRAM = """
import sys
import tensorflow as tf
import keras_ring as kr

kr.init()

@tf.function
def step(rows):
    loss = tf.reduce_sum(tf.gather(tf.ones([10, 2]), rows))
    return kr.allreduce(loss, name="loss")

step(tf.constant([1, 2]))
try:
    step(tf.constant([1, 999 if kr.rank() == 1 else 2]))
except tf.errors.OpError as error:
    if sys.argv[1] == "raised":
        raise
    print("first line:", str(error).splitlines()[0])
    raise SystemExit(3)
"""
CAUSE = "InvalidArgumentError: indices[1] = 999 is not in [0, 10)"


def _run(tmp_path, how):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = Command(
        *("run", "-np", "2", "--threads", "1", "--"),
        *(sys.executable, str(script), how),
        KERAS_RING_FLIGHT_DIRECTORY="off",
        TF_CPP_MIN_LOG_LEVEL="",
    )
    done = command.wait()
    own = [
        line.removeprefix("keras-ring: ")
        for line in done.stderr.splitlines()
        if line.startswith("keras-ring: ")
    ]
    return done, own


def test_of_an_uncaught_error(tmp_path):
    done, own = _run(tmp_path, "raised")
    assert done.returncode == 1
    assert own[0].startswith(f"rank 1 raised {CAUSE} (node ")
    assert own[1].startswith("rank 1 (pid ")
    assert own[1].endswith("; it failed first")
    assert own[2:] == ["rank 0 exited with code 1, having lost rank 1"]
    # The traceback of the rank that failed, and a line of the one that did not.
    assert done.stderr.count("Traceback (most recent call last)") == 1
    told = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("[0] UnavailableError: ")
    ]
    assert len(told) == 1
    assert f"rank 1 ended with {CAUSE}" in told[0]
    # What TensorFlow says as it starts is not among it.
    assert "oneDNN" not in done.stderr


def test_of_an_error_that_the_program_catches(tmp_path):
    done, own = _run(tmp_path, "caught")
    assert done.returncode == 3
    assert own[0].startswith(f"rank 1 raised {CAUSE}")
    assert own[0].endswith(", which its program caught")
    assert own[1].startswith("rank 1 (pid ")
    assert "exited with code 3 after" in own[1]
    assert own[-1].startswith("rank 0 exited with code 3")
    first = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("[0] first line: ")
    ]
    assert len(first) == 1
    assert "the job is over: rank 1 ended with " + CAUSE in first[0]
