"""Kills a rank of a job again and again, and times how others come in.

    python -m tests.multiprocess.elastic.joins --joins 200
    python -m tests.multiprocess.elastic.joins --joins 200 --hosts 2 \\
        --delay 500us

Ranks sum two numbers in each step, of 5 ms, and ask after it whether anyone
waits. Whenever all ranks are there, one of them kills itself within 50 ms, at
random, and the launcher starts another one. Prints how long it took from its
death to the next step of the others, and for how long they have waited for
those that came in.

With `--hosts`, the ranks are on so many hosts of the lab, the links to which
have a delay.
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
from tests.lab import lab

_WAITED = re.compile(r"let in after ([\d.]+) ms")
_KILLED = re.compile(r"killed (\d+) at ([\d.]+)")
_WENT_ON = re.compile(r"went on (\d+) at ([\d.]+)")


def _kill(after, number):
    def end():
        print(f"killed {number} at {time.time()}", flush=True)
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
            _kill(after, known[0])

    if generations.is_waiting():
        generations.admit()
    meet()
    size = core.size()
    # With all ranks there once more after the last has come in.
    while known[0] < joins or core.size() < ranks:
        time.sleep(0.005)
        sums = core.allreduce(np.array([1, known[1]]), core.Sum, name="sum")
        assert sums[1] == sums[0] * known[1], (sums, known)
        known[1] += 1
        if sums[0] < size:
            size = sums[0]
            print(f"went on {known[0]} at {time.time()}", flush=True)
        waiting = np.array([generations.num_waiting()])
        if core.allreduce(waiting, core.Max, name="waiting")[0]:
            before, began = core.size(), time.perf_counter()
            generations.admit()
            took = time.perf_counter() - began
            size = core.size()
            known[0] += size - before
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
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--delay", default="")
    parser.add_argument("--rank", action="store_true")
    options = parser.parse_args()
    if options.rank:
        _train(options.ranks, options.joins, options.seed)
        return
    done = _run(options)
    print(done[-500:])
    killed = {number: float(at) for number, at in _KILLED.findall(done)}
    # When the last of the others has made a step.
    went_on = {number: float(at) for number, at in _WENT_ON.findall(done)}
    _show(
        "kills, to the next step of the others",
        [(went_on[each] - killed[each]) * 1e3 for each in killed],
    )
    _show(
        "admissions, the others waited for",
        list(map(float, _WAITED.findall(done))),
    )


def _run(options):
    """Returns what the job has printed."""
    ranks = str(options.ranks)
    words = ("-np", ranks, "--max-np", ranks, "--")
    program = [sys.executable, "-m", "tests.multiprocess.elastic.joins"]
    program += ["--rank", *sys.argv[1:]]
    if options.hosts == 1:
        command = [sys.executable, "-m", "keras_ring", "run", *words, *program]
        return _output(command)
    with lab.lab(options.hosts) as made:
        if options.delay:
            made("up", str(options.hosts), "--delay", options.delay)
        slots = -(-options.ranks // options.hosts)
        hosts = ",".join(f"kr-h{each}:{slots}" for each in range(options.hosts))
        return _output(made.run(hosts, *words, *program))


def _output(command):
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _show(what, took):
    took = sorted(took)
    print(
        f"{len(took)} {what} (ms):"
        f" {statistics.median(took):.1f} (median),"
        f" {took[int(0.95 * len(took))]:.1f} (95 of 100), {took[-1]:.1f} (max)"
    )


if __name__ == "__main__":
    main()
