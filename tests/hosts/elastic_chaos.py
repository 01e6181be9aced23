"""Does everything at random to an elastic job on hosts of the lab.

    python -m tests.hosts.elastic_chaos --seconds 600

Ranks sum numbers on three hosts, and others join in the place of those that are
lost. Meanwhile ranks are killed and stopped, agents and their ssh are killed,
hosts are cut off and healed, and links become slow. After each of these, the
ranks that are left must make steps again in time, each with the right sum, and
all ranks must be there again before the next. At the end the job ends well, and
nothing is left of it.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.hosts.conftest import Jobs
from tests.hosts.elastic_sums import SUMS, Sums, parent_of
from tests.lab import lab as lab_module

RANKS = 6
# Seconds until the ranks that are left make steps again. A host that is cut off
# is lost after 5.5, and a rank that is stopped is killed after 13.5.
_LIMIT = 25.0
# And until all are there: a lost host is tried for 10 s, and again.
_BACK = 120.0


def _send(pid, signum):
    """Sends a signal to a process, which an earlier event may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


class Chaos:
    """The events, and when the job has gone on after them.

    Args:
        job: `Sums`, the job.
        lab: The `Lab` of its hosts.
        seed: Integer.
    """

    def __init__(self, job, lab, seed):
        self._job = job
        self._lab = lab
        self._draw = random.Random(seed)
        self.took = {}

    def run(self, seconds):
        """Goes on for this time, and then until all ranks are there."""
        end = time.monotonic() + seconds
        events = (
            self.kill,
            self.kill_two,
            self.stop,
            self.end_agent,
            self.cut,
            self.slow,
        )
        while time.monotonic() < end:
            pids = self._job.wait_for(RANKS, after=time.time(), seconds=_BACK)
            time.sleep(self._draw.uniform(0, 1))
            event = self._draw.choice(events)
            print(f"{event.__name__}: ", end="", flush=True)
            event(pids)
            began = time.time()
            # Those that lose a rank may have got its last word yet.
            self._job.wait_for_any(after=began + 0.02, seconds=_LIMIT)
            took = time.time() - began
            print(f"went on after {took:.2f} s", flush=True)
            self.took.setdefault(event.__name__, []).append(took)
        self._job.wait_for(RANKS, after=time.time(), seconds=_BACK)

    def kill(self, pids):
        """Kills a rank."""
        _send(self._draw.choice(pids), signal.SIGKILL)

    def kill_two(self, pids):
        """Kills two ranks, the second of which may be in a change."""
        first, second = self._draw.sample(pids, 2)
        _send(first, signal.SIGKILL)
        time.sleep(self._draw.choice((0, self._draw.uniform(0, 0.05))))
        _send(second, signal.SIGKILL)

    def stop(self, pids):
        """Stops a rank for a while."""
        pid = self._draw.choice(pids)
        _send(pid, signal.SIGSTOP)
        time.sleep(self._draw.uniform(0.1, 3))
        _send(pid, signal.SIGCONT)

    def end_agent(self, pids):
        """Ends the agent of a host, or ssh to it."""
        how = self._draw.choice((signal.SIGTERM, signal.SIGKILL))
        with contextlib.suppress(FileNotFoundError):
            _send(parent_of(self._draw.choice(pids)), how)

    def cut(self, pids):
        """Cuts off a host for a while."""
        host = self._draw.choice(("h1", "h2"))
        self._lab("cut", host)
        time.sleep(self._draw.choice((1.0, 2.5, 4.0, 7.0, 9.0)))
        self._lab("heal", host)

    def slow(self, pids):
        """Makes a link slow for a while."""
        host = self._draw.choice(("h1", "h2"))
        self._lab("slow", host, "--rate", "1mbit")
        time.sleep(self._draw.uniform(0.5, 3))
        self._lab("heal", host)


def run(lab, jobs, folder, *, seconds, seed):
    """Runs a job under chaos; returns the `Chaos`.

    Args:
        lab: The `Lab`, of three hosts.
        jobs: `Jobs` that starts it.
        folder: Path of a directory for the program and what ranks tell.
        seconds: Float.
        seed: Integer.
    """
    script = folder / "sums.py"
    script.write_text(SUMS)
    command = lab.run(
        "kr-h0:2,kr-h1:2,kr-h2:2",
        *("--max-np", str(RANKS), "--host-cooldown", "1"),
        *("--", sys.executable, str(script), str(folder)),
    )
    output = folder / "output"
    with output.open("w") as file:
        job = Sums(jobs.start(command, output=file), folder)
    chaos = Chaos(job, lab, seed)
    try:
        chaos.run(seconds)
        job.end()
    except AssertionError:
        print(output.read_text()[-5000:])
        raise
    said = output.read_text()
    assert job.process.returncode == 0, said[-5000:]
    ended = re.findall(rf"rank . of {RANKS} ended well", said)
    assert len(ended) == RANKS, said[-5000:]
    left = jobs.wait_until_gone(6)
    assert not left, left
    return chaos


def main():
    """Runs it in a lab of its own, and prints how long ranks stood still."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jobs = Jobs()
    try:
        with lab_module.lab(3) as lab, tempfile.TemporaryDirectory() as folder:
            chaos = run(
                lab,
                jobs,
                Path(folder),
                seconds=options.seconds,
                seed=options.seed,
            )
    finally:
        jobs.kill()
    for name, took in sorted(chaos.took.items()):
        print(
            f"{name}: {len(took)} times, went on after"
            f" {statistics.median(took):.2f} s (median), {max(took):.2f} (max)"
        )


if __name__ == "__main__":
    main()
