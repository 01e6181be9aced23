"""A rank that starts processes before it calls `init()`."""

import multiprocessing
import sys
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

import keras_ring as kr
from keras_ring.core import arrays

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        child = multiprocessing.get_context(method).Process(target=print)
        child.start()
        child.join(60)
        print("exit code", child.exitcode)
    # They would end by themselves, a moment after this process.
    forkserver._forkserver._stop()
    resource_tracker._resource_tracker._stop()

# The lines that a child runs as well.
kr.init()
if __name__ == "__main__":
    total = arrays.allreduce(np.ones(3), kr.Sum, name="test/after")
    print("sum", total.tolist())
