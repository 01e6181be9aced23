"""A job on several hosts that sums until it is told to end."""

import time
from pathlib import Path

# Sums until rank 0 finds the file `end`, with others that come in. Tells who it
# is, and when it has made a step.
SUMS = """
import os, pathlib, sys, time
import numpy as np
from keras_ring import core
from keras_ring.core import generations
folder = pathlib.Path(sys.argv[1])
def agreed(steps):
    return int(core.allreduce(np.array([steps]), core.Max, name="steps")[0])
core.init()
if generations.is_waiting():
    generations.admit()
steps = agreed(0)
mine = folder / f"rank.{os.getpid()}"
while True:
    time.sleep(0.005)
    end = int(core.rank() == 0 and (folder / "end").exists())
    sums = core.allreduce(np.array([1, steps, end]), core.Sum, name="sum")
    assert sums[1] == sums[0] * steps, (sums, steps)
    mine.write_text(f"{time.time()} {core.rank()} {core.size()}")
    if sums[2]:
        break
    steps += 1
    print("x" * int(os.environ.get("NOISE", 0)), end="", flush=True)
    # A program that never asks is one that nobody can join, or leave.
    asks = "NEVER_ASKS" not in os.environ
    waiting = np.array([generations.num_waiting() if asks else 0])
    if core.allreduce(waiting, core.Max, name="waiting")[0]:
        generations.admit()
        steps = agreed(steps)
print(f"rank {core.rank()} of {core.size()} ended well", flush=True)
core.shutdown()
"""


class Sums:
    """A job that sums, and what its ranks have told."""

    def __init__(self, process, folder):
        self.process = process
        self.folder = folder

    def _told(self):
        told = {}
        for path in self.folder.glob("rank.*"):
            words = path.read_text().split()
            if len(words) == 3:
                told[int(path.name.partition(".")[2])] = (
                    float(words[0]),
                    *map(int, words[1:]),
                )
        return told

    @staticmethod
    def _runs(pid):
        try:
            return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False

    def wait_for(self, size, *, after=0.0, seconds=30):
        """Waits until so many ranks make steps together.

        Args:
            size: Integer, the number of ranks.
            after: Float, the time before which their steps do not count.
            seconds: Float.

        Returns:
            The process ids of the ranks, in their order.
        """
        end = time.monotonic() + seconds
        while True:
            told = self._told().items()
            now = {
                rank: pid
                for pid, (when, rank, of) in told
                if of == size and when > after and self._runs(pid)
            }
            if len(now) == size:
                return [now[rank] for rank in range(size)]
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, told
            time.sleep(0.005)

    def wait_for_any(self, *, after, seconds):
        """Waits until the ranks that are left make steps together.

        Args:
            after: Float, the time before which their steps do not count.
            seconds: Float.
        """
        end = time.monotonic() + seconds
        while True:
            now = {}
            for pid, (when, rank, of) in self._told().items():
                if when > after and self._runs(pid):
                    now.setdefault(of, set()).add(rank)
            if any(len(ranks) == of for of, ranks in now.items()):
                return
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, now
            time.sleep(0.005)

    def last_step_of(self, pids):
        """Returns when one of these has made a step for the last time."""
        told = self._told()
        return max(told[pid][0] for pid in pids)

    def end(self):
        """Ends the program; returns what the launcher has printed."""
        (self.folder / "end").touch()
        return self.process.communicate(timeout=20)


def parent_of(pid):
    """Returns the process id of the parent of a process."""
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])
