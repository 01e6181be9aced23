"""A rank of a training in which rank 1 is killed. Arguments: the file in which
it says when, and how the others end: `raise` or `catch`. What they have seen
they write beside it, and wait until all have: the first to end without
MPI_Finalize may have the launcher end the others."""

import os
import signal
import sys
import time
from pathlib import Path

import tensorflow as tf

import keras_ring as kr

TOLD, ENDING = Path(sys.argv[1]), sys.argv[2]

kr.init()
SURVIVORS = kr.size() - 1
gradient = tf.ones(200_000)
try:
    for step in range(100_000):
        if step == 20 and kr.rank() == 1:
            TOLD.write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        kr.allreduce(gradient, name="gradient")
except tf.errors.OpError as error:
    seconds = time.time() - float(TOLD.read_text())
    message = str(error.message).splitlines()[0]
    seen = TOLD.with_name(f"seen.{kr.rank()}")
    seen.write_text(f"{seconds:.2f} {message}")
    limit = time.monotonic() + 20
    while (
        len(list(TOLD.parent.glob("seen.*"))) < SURVIVORS
        and time.monotonic() < limit
    ):
        time.sleep(0.02)
    if ENDING == "raise":
        raise
