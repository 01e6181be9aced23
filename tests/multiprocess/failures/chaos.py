"""Random faults during real training.

    python -m tests.multiprocess.failures.chaos

Jobs of 2 to 4 ranks run `fit` with evaluation and checkpoints. At a random
time a random rank (or the launcher) is killed, stopped for good, or stopped for
a while. Afterwards the launcher must have ended with the right exit code and
named the rank that was hit, and nothing may be left.
"""

import argparse
import dataclasses
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# Before anything is imported that reads them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["KERAS_RING_ZERO_COPY"] = "0"

from tests.harness.forked_launcher import ForkedLauncher
from tests.harness.result import shared_memory_names
from tests.multiprocess.failures import run_fit

HEARTBEAT_TIMEOUT = 3.0
START_TIMEOUT = 10.0
FAULTS = (
    "SIGKILL",
    "SIGSEGV",
    "SIGTERM",
    "SIGSTOP",
    "pause",
    "launcher SIGKILL",
)
_GONE_WITHIN = 10.0


@dataclasses.dataclass
class Fault:
    """What happens to one job.

    Args:
        kind: One of FAULTS.
        size: Number of ranks.
        rank: Which is hit.
        delay: Seconds after all ranks have begun to train; if negative, after
            the first rank's start, with the sign turned.
        collective: What reduces.
    """

    kind: str
    size: int
    rank: int
    delay: float
    collective: str


def draw(random_: random.Random) -> Fault:
    """Returns a random fault."""
    size = random_.randint(2, 4)
    early = random_.random() < 0.2
    return Fault(
        random_.choice(FAULTS),
        size,
        random_.randrange(size),
        -random_.uniform(0.01, 2.0) if early else random_.uniform(0.0, 2.0),
        random_.choice(("shm", "ring")),
    )


def run(fault: Fault, time_scale: float = 1.0) -> list[str]:
    """Runs one job; returns what was wrong."""
    shared = shared_memory_names()
    # Not a `TemporaryDirectory`, which the forked ranks would remove.
    folder = Path(tempfile.mkdtemp(prefix="kr-chaos-"))
    here, temporary = folder / "here", folder / "tmp"
    here.mkdir()
    temporary.mkdir()
    # Nobody misses a rank that stops when all have come to their end.
    seconds = 4.0 if fault.kind == "pause" else 600.0
    launcher = ForkedLauncher(
        fault.size,
        lambda: run_fit.main(here, seconds),
        {
            "TMPDIR": str(temporary),
            "KERAS_RING_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT),
            "KERAS_RING_START_TIMEOUT": str(START_TIMEOUT * time_scale),
            "KERAS_RING_COLLECTIVE": fault.collective,
            "KERAS_RING_FLIGHT_DIRECTORY": "off",
        },
        here,
    )
    try:
        problems = _harm(fault, launcher, here, time_scale)
    finally:
        left = launcher.end(_GONE_WITHIN * time_scale)
    problems += [f"left running: process {pid}" for pid in left]
    problems += [f"left: {path}" for path in temporary.glob("keras-ring-*")]
    problems += [f"left: {name}" for name in shared_memory_names() - shared]
    shutil.rmtree(folder)
    return problems


def _harm(fault, launcher, here, time_scale) -> list[str]:
    until = time.monotonic() + 60.0 * time_scale
    awaited = "pid.0" if fault.delay < 0 else "here.*"
    wanted = 1 if fault.delay < 0 else fault.size
    while len(list(here.glob(awaited))) < wanted:
        if time.monotonic() > until or launcher.wait(0.0):
            return ["the ranks did not train: " + launcher.stderr()[-800:]]
        time.sleep(0.005)
    time.sleep(abs(fault.delay))
    pid = launcher.pid
    if not fault.kind.startswith("launcher"):
        while (pid := launcher.pid_of_rank(fault.rank)) is None:
            time.sleep(0.005)
    try:
        if fault.kind == "pause":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(HEARTBEAT_TIMEOUT / 2)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, signal.Signals[fault.kind.split()[-1]])
    except ProcessLookupError:
        return ["the rank had ended: " + launcher.stderr()[-800:]]
    limit = 30.0 + 30.0 * (fault.kind == "pause")
    hung = not launcher.wait(limit * time_scale)
    problems = ["hung"] if hung else []
    if hung:
        os.kill(launcher.pid, signal.SIGKILL)
        launcher.wait(10.0)
    return problems + _judge(fault, pid, launcher)


def _judge(fault, pid, launcher) -> list[str]:
    code, stderr = launcher.returncode, launcher.stderr()
    problems = []
    if fault.kind == "pause":
        if code != 0:
            problems.append(f"exit code {code}: {stderr[-800:]}")
    elif fault.kind == "SIGSTOP":
        if not _blames(stderr, fault.rank):
            problems.append(f"names another: {stderr[-800:]}")
    elif not fault.kind.startswith("launcher"):
        if code != 128 + signal.Signals[fault.kind]:
            problems.append(f"exit code {code}: {stderr[-800:]}")
        if f"keras-ring: rank {fault.rank} (pid {pid})" not in stderr:
            problems.append(f"names another: {stderr[-800:]}")
    return problems


def _blames(stderr: str, rank: int) -> bool:
    """Whether those that waited for a stopped rank name it, and no other."""
    names = set(
        re.findall(r"lost rank (\d+)|rank (\d+) of \d+ did not join", stderr)
    )
    if not names:
        return rank == 0 and "rank 0 did not come" in stderr
    return {name for pair in names for name in pair if name} == {str(rank)}


def main() -> int:
    """Returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="of faults, at most")
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    scale = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
    print(f"seed {arguments.seed}", flush=True)
    count: Counter[str] = Counter()
    end = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < end:
        if count["faults injected"] == arguments.count:
            break
        fault = draw(random_)
        problems = run(fault, scale)
        count[fault.kind] += 1
        count["faults injected"] += 1
        count["ended rightly"] += not problems
        count["hung"] += "hung" in problems
        count["left something"] += any(p.startswith("left") for p in problems)
        if problems:
            print(fault, *problems, sep="\n    ", flush=True)
    print(
        *(
            f"{what}: {count[what]}"
            for what in (
                "faults injected",
                "ended rightly",
                "hung",
                "left something",
                *FAULTS,
            )
        ),
        sep="\n",
    )
    return 1 if count["ended rightly"] < count["faults injected"] else 0


if __name__ == "__main__":
    sys.exit(main())
