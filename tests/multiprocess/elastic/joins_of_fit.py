"""Kills a rank of a `fit` again and again, and times how others come in.

    python -m tests.multiprocess.elastic.joins_of_fit --joins 20

Whenever all ranks are there, one of them kills itself within a second, at
random, and the launcher starts another one. Prints for how long the ranks have
waited for those that came in, and for how long after a kill.
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

import keras
import numpy as np

import keras_ring as kr

_BATCH = 16


class Joins(keras.callbacks.Callback):
    """Counts joins, kills a rank after each, and times the batches."""

    # Who comes in sees the number of ranks grow as well.
    shared_state = ("joins", "size")

    def __init__(self, most, ranks, seed):
        super().__init__()
        self.joins = 0
        self.size = 0
        self._most, self._ranks, self._seed = most, ranks, seed
        self._ended = 0.0
        self._waited = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        self._waited = 1e3 * (time.perf_counter() - self._ended)

    def on_train_batch_end(self, batch, logs=None):
        took = 1e3 * (time.perf_counter() - self._ended)
        size, before = kr.size(), self.size
        if self._ended and 0 < before < size:
            print(f"join: {self._waited:.2f} of {took:.2f} ms", flush=True)
        elif self._ended and size < before:
            print(f"loss: {took:.2f} ms", flush=True)
        elif self._ended and size == self._ranks:
            print(f"step: {took:.2f} ms", flush=True)
        if size != before:
            self.joins += 0 < before < size
            self.size = size
            if size == self._ranks and self.joins < self._most:
                self._kill()
        self.model.stop_training = self.joins >= self._most
        time.sleep(0.005)
        self._ended = time.perf_counter()

    def _kill(self):
        draw = random.Random(f"{self._seed}/{self.joins}")
        victim, after = draw.randrange(self._ranks), draw.uniform(0.2, 1.0)
        if kr.rank() == victim:
            end = (os.getpid(), signal.SIGKILL)
            deadly = threading.Timer(after, os.kill, end)
            deadly.daemon = True
            deadly.start()


def _train(options):
    kr.init()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    data = kr.data.batches((x, x.sum(axis=1)), _BATCH, shuffle=True)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(options.width, activation="relu"),
            layers.Dense(options.width, activation="relu"),
            layers.Dense(1),
        ]
    )
    optimizer = kr.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, "mse", jit_compile=False)
    callbacks = [
        kr.callbacks.BroadcastGlobalVariablesCallback(0),
        Joins(options.joins, options.ranks, options.seed),
    ]
    model.fit(data, epochs=10**6, verbose=0, callbacks=callbacks)
    total = sum(np.abs(each).sum() for each in model.get_weights())
    print(f"rank {kr.rank()} of {kr.size()}: weights {total:.9g}", flush=True)
    kr.shutdown()


def _described(took):
    took = sorted(took)
    return (
        f"{statistics.median(took):.1f} (median),"
        f" {took[int(0.95 * len(took))]:.1f} (95 of 100), {took[-1]:.1f} (max)"
    )


def main():
    """Runs a job and prints how long its ranks have waited."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--joins", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank", action="store_true")
    options = parser.parse_args()
    if options.rank:
        _train(options)
        return
    ranks = str(options.ranks)
    launcher = [sys.executable, "-m", "keras_ring", "run", "-np", ranks]
    program = [sys.executable, "-m", "tests.multiprocess.elastic.joins_of_fit"]
    done = subprocess.run(
        [*launcher, "--max-np", ranks, "--", *program, "--rank", *sys.argv[1:]],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    weights = set(re.findall(r"weights (\S+)", done.stdout))
    assert len(weights) == 1, weights
    joins = re.findall(r"join: ([\d.]+) of ([\d.]+) ms", done.stdout)
    by_kind = {
        "admission and transfer": [float(waited) for waited, _ in joins],
        "to the end of the next step": [float(took) for _, took in joins],
        "step after a kill": re.findall(r"loss: ([\d.]+) ms", done.stdout),
        "step with all ranks": re.findall(r"step: ([\d.]+) ms", done.stdout),
    }
    for kind, took in by_kind.items():
        print(f"{kind}, ms: {_described(map(float, took))}, of {len(took)}")


if __name__ == "__main__":
    main()
