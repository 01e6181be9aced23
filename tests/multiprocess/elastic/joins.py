"""Kills a rank of a job again and again, and times how others come in.

    python -m tests.multiprocess.elastic.joins --joins 200

Ranks sum two numbers in each step, of 5 ms, and ask after it whether anyone
waits. Whenever all ranks are there, one of them kills itself within 50 ms, at
random, and the launcher starts another one. Prints for how long the ranks have
waited for those that came in.
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

from keras_ring import core
from keras_ring.core import generations

_LINE = re.compile(r"let in after ([\d.]+) ms")


def _kill(after):
    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    deadly = threading.Timer(after, end)
    deadly.daemon = True
    deadly.start()


def _train(ranks, joins, seed):
    core.init()
    # What all know: how many have come in, and the number of steps.
    known = np.zeros(2, np.int64)

    def meet():
        nonlocal known
        known = np.array(core.broadcast(known, 0, name="known"))
        draw = random.Random(f"{seed}/{known[0]}")
        victim, after = draw.randrange(ranks), draw.uniform(0, 0.05)
        is_full = core.size() == ranks
        if is_full and known[0] < joins and core.rank() == victim:
            _kill(after)

    if generations.is_waiting():
        generations.admit()
    meet()
    # With all ranks there once more after the last has come in.
    while known[0] < joins or core.size() < ranks:
        time.sleep(0.005)
        sums = core.allreduce(np.array([1, known[1]]), core.Sum, name="sum")
        assert sums[1] == sums[0] * known[1], (sums, known)
        known[1] += 1
        waiting = np.array([generations.num_waiting()])
        if core.allreduce(waiting, core.Max, name="waiting")[0]:
            before, began = core.size(), time.perf_counter()
            generations.admit()
            took = time.perf_counter() - began
            known[0] += core.size() - before
            if core.rank() == 0:
                print(f"let in after {took * 1e3:.2f} ms", flush=True)
            meet()
    print(f"rank {core.rank()} of {core.size()}: {known[1]} steps", flush=True)
    core.shutdown()


def main():
    """Runs a job and prints how long its ranks have waited."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--joins", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank", action="store_true")
    options = parser.parse_args()
    if options.rank:
        _train(options.ranks, options.joins, options.seed)
        return
    ranks = str(options.ranks)
    launcher = [sys.executable, "-m", "keras_ring", "run", "-np", ranks]
    program = [sys.executable, "-m", "tests.multiprocess.elastic.joins"]
    done = subprocess.run(
        [*launcher, "--max-np", ranks, "--", *program, "--rank", *sys.argv[1:]],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    took = sorted(map(float, _LINE.findall(done.stdout)))
    print(done.stdout[-500:])
    print(
        f"{len(took)} admissions, the others waited for (ms):"
        f" {statistics.median(took):.1f} (median),"
        f" {took[int(0.95 * len(took))]:.1f} (95 of 100), {took[-1]:.1f} (max)"
    )


if __name__ == "__main__":
    main()
