"""Random faults during real training: `python -m tests.multiprocess.chaos`.

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
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.harness.result import shared_memory_names
from tests.launcher.command import Command

HEARTBEAT_TIMEOUT = 5.0
FAULTS = (
    "SIGKILL",
    "SIGSEGV",
    "SIGTERM",
    "SIGSTOP",
    "pause",
    "launcher SIGKILL",
)
_SCRIPT = Path(__file__).with_name("run_fit.py")
_GONE_WITHIN = 10.0


@dataclasses.dataclass
class Fault:
    """What happens to one job.

    Args:
        kind: One of FAULTS.
        size: Number of ranks.
        rank: Which is hit.
        delay: Seconds after all ranks have begun to train; if negative, after
            the start of the job, with the sign turned.
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
        -random_.uniform(0.5, 8.0) if early else random_.uniform(0.0, 2.0),
        random_.choice(("shm", "ring")),
    )


def run(fault: Fault, time_scale: float = 1.0) -> list[str]:
    """Runs one job; returns what was wrong."""
    shared = shared_memory_names()
    with tempfile.TemporaryDirectory(prefix="kr-chaos-") as folder:
        here, temporary = Path(folder) / "here", Path(folder) / "tmp"
        here.mkdir()
        temporary.mkdir()
        command = Command(
            *("run", "-np", str(fault.size), "--"),
            *(sys.executable, str(_SCRIPT), str(here), "2"),
            TMPDIR=str(temporary),
            TF_CPP_MIN_LOG_LEVEL="3",
            KERAS_RING_HEARTBEAT_TIMEOUT=str(HEARTBEAT_TIMEOUT),
            KERAS_RING_COLLECTIVE=fault.collective,
            KERAS_RING_FLIGHT_DIRECTORY="off",
        )
        try:
            problems = _harm(fault, command, here, time_scale)
        finally:
            left = command.wait_until_gone(_GONE_WITHIN)
        problems += [f"left running: process {pid}" for pid in left]
        end = time.monotonic() + _GONE_WITHIN
        ours = "keras-ring-*"
        while list(temporary.glob(ours)) and time.monotonic() < end:
            time.sleep(0.02)
        problems += [f"left: {path}" for path in temporary.glob(ours)]
    problems += [f"left: {name}" for name in shared_memory_names() - shared]
    return problems


def _harm(fault, command, here, time_scale) -> list[str]:
    begun = time.monotonic() + 60.0 * time_scale
    if fault.delay < 0:
        time.sleep(-fault.delay)
    else:
        while len(list(here.glob("here.*"))) < fault.size:
            if time.monotonic() > begun or command.process.poll() is not None:
                return ["the ranks did not train: " + _end(command, 1.0)[1]]
            time.sleep(0.02)
        time.sleep(fault.delay)
    pid = command.process.pid
    if not fault.kind.startswith("launcher"):
        pid = pid_of_rank(command, fault.rank)
    if pid is None:
        return ["the rank had ended"]
    if fault.kind == "pause":
        os.kill(pid, signal.SIGSTOP)
        time.sleep(HEARTBEAT_TIMEOUT / 2)
        os.kill(pid, signal.SIGCONT)
    else:
        os.kill(pid, signal.Signals[fault.kind.split()[-1]])
    limit = (60.0 if fault.delay < 0 else 15.0) * time_scale
    hung, stderr = _end(command, limit + 30.0 * (fault.kind == "pause"))
    problems = ["hung"] if hung else []
    code = command.process.returncode
    if fault.kind == "pause":
        if code != 0:
            problems.append(f"exit code {code}: {stderr[-800:]}")
    elif fault.kind == "SIGSTOP":
        if fault.delay > 0 and not _blames(stderr, fault.rank):
            problems.append(f"names another: {stderr[-800:]}")
    elif not fault.kind.startswith("launcher"):
        if code != 128 + signal.Signals[fault.kind]:
            problems.append(f"exit code {code}: {stderr[-800:]}")
        if f"keras-ring: rank {fault.rank} (pid {pid})" not in stderr:
            problems.append(f"names another: {stderr[-800:]}")
    return problems


def _blames(stderr: str, rank: int) -> bool:
    return set(re.findall(r"lost rank (\d+)", stderr)) == {str(rank)}


def _end(command: Command, limit: float) -> tuple[bool, str]:
    """Waits for the launcher; returns whether it hung, and what it wrote."""
    try:
        _, stderr = command.process.communicate(timeout=limit)
        return False, stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        command.process.kill()
        _, stderr = command.process.communicate()
        return True, stderr.decode(errors="replace")


def pid_of_rank(command: Command, rank: int) -> int | None:
    """Returns the process of a rank: the leader of its session."""
    variable = f"KERAS_RING_RANK={rank}".encode()
    for pid in command.alive():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if variable in environ and os.getsid(pid) == pid:
                return pid
        except OSError:
            continue
    return None


def main() -> int:
    """Returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    scale = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
    print(f"seed {arguments.seed}", flush=True)
    count: Counter[str] = Counter()
    end = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < end:
        fault = draw(random_)
        problems = run(fault, scale)
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
            )
        ),
        sep="\n",
    )
    return 1 if count["ended rightly"] < count["faults injected"] else 0


if __name__ == "__main__":
    sys.exit(main())
