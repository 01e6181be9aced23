"""Random ends of jobs, and what they leave: `python -m tests.launcher.kills`.

Each job has 1 to 6 ranks that do not import anything, some with children of
their own, in other process groups or sessions. Something ends it at a random
time: a signal to the launcher (once, or twice), a signal to a rank, all ranks
ending by themselves, the launcher or its watchdog being killed. Afterwards no
process, file, or socket may be left, and the exit code must be right.
"""

import argparse
import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.result import shared_memory_names
from tests.launcher.command import Command

KINDS = (
    "launcher SIGINT",
    "launcher SIGTERM",
    "launcher SIGHUP",
    "launcher SIGINT twice",
    "launcher SIGTERM twice",
    "launcher SIGKILL",
    "rank SIGKILL",
    "rank SIGSEGV",
    "rank SIGTERM",
    "rank fails",
    "all end",
)
_EXIT_CODE = 7
_TIME_SCALE = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
_GONE_WITHIN = 8.0 * _TIME_SCALE

# $1: where ranks say that they are there; $2, $3: who fails by itself, when.
_RANK = """
if [ "$IGNORES" = 1 ]; then trap '' TERM INT HUP; fi
case $KERAS_RING_RANK in
  0) sleep 60 & ;;
  1) setsid sleep 60 & ;;
  2) (sleep 60 & sleep 60) & ;;
esac
: > "$1/$KERAS_RING_RANK"
if [ "$2" = "$KERAS_RING_RANK" ]; then sleep "$3"; exit 7; fi
if [ "$2" = all ]; then sleep "$3"; exit 0; fi
while :; do sleep 0.05; done
"""


@dataclasses.dataclass
class Kill:
    """How one job ends.

    Args:
        kind: One of KINDS.
        size: Number of ranks.
        rank: Which rank is meant.
        delay: Seconds after the start, or after all ranks are there.
        early: Whether it does not wait for the ranks to be there.
        ignores: Whether the ranks ignore what asks them to leave.
    """

    kind: str
    size: int
    rank: int
    delay: float
    early: bool
    ignores: bool


def draw(seed: int, count: int) -> list[Kill]:
    """Returns so many ends of jobs, each kind as often."""
    random_ = random.Random(seed)
    kills = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        size = random_.randint(1, 6)
        kills.append(
            Kill(
                kind,
                size,
                random_.randrange(size),
                random_.uniform(0.0, 0.3),
                # A rank that is not there cannot be hit.
                kind.startswith("launcher") and random_.random() < 0.4,
                # Patience is not what is tested, and takes seconds.
                "twice" in kind and random_.random() < 0.5,
            )
        )
    random_.shuffle(kills)
    return kills


def run(kill: Kill) -> list[str]:
    """Runs a job to its end; returns what was wrong."""
    shared = shared_memory_names()
    with tempfile.TemporaryDirectory(prefix="kr-kill-") as folder:
        here = Path(folder) / "here"
        temporary = Path(folder) / "tmp"
        here.mkdir()
        temporary.mkdir()
        fails = {"rank fails": str(kill.rank), "all end": "all"}
        command = Command(
            *("run", "-np", str(kill.size), "--"),
            *("sh", "-c", _RANK, "rank", str(here)),
            *(fails.get(kill.kind, "nobody"), f"{kill.delay:.3f}"),
            TMPDIR=str(temporary),
            IGNORES=str(int(kill.ignores)),
        )
        try:
            problems = _end(kill, command, here)
        finally:
            left = command.wait_until_gone(_GONE_WITHIN)
        problems += [f"left running: process {pid}" for pid in left]
        # What is removed last is removed by the watchdog.
        end = time.monotonic() + _GONE_WITHIN
        while os.listdir(temporary) and time.monotonic() < end:
            time.sleep(0.02)
        problems += [f"left: {name}" for name in os.listdir(temporary)]
    problems += [f"left: {name}" for name in shared_memory_names() - shared]
    return problems


def _wait_for_ranks(kill: Kill, here: Path) -> None:
    end = time.monotonic() + 30.0
    while len(os.listdir(here)) < kill.size and time.monotonic() < end:
        time.sleep(0.01)


def _end(kill: Kill, command: Command, here: Path) -> list[str]:
    who, _, word = kill.kind.partition(" ")
    if not kill.early:
        _wait_for_ranks(kill, here)
    if who == "launcher":
        time.sleep(kill.delay)
        signum = signal.Signals[word.split()[0]]
        with contextlib.suppress(ProcessLookupError):
            command.process.send_signal(signum)
            if word.endswith("twice"):
                # Two that come before the first is seen are one.
                time.sleep(0.3 + kill.delay)
                _wait_until_seen(command.process.pid, signum)
                command.process.send_signal(signum)
    elif word.startswith("SIG"):
        time.sleep(kill.delay)
        pid = _pid_of_rank(command, kill.rank)
        os.kill(pid, signal.Signals[word])
    started = time.monotonic()
    try:
        done = command.wait()
    except subprocess.TimeoutExpired:
        return ["hung"]
    seconds = time.monotonic() - started
    problems = []
    wanted = _wanted(kill, word)
    if done.returncode not in wanted:
        problems.append(
            f"exit code {done.returncode}, expected {wanted}: "
            + done.stderr[-500:]
        )
    if word.startswith("SIG") and who == "rank":
        if f"keras-ring: rank {kill.rank} (pid " not in done.stderr:
            problems.append(f"names another: {done.stderr[-500:]}")
    if seconds > (4.0 if "twice" in kill.kind else 15.0) * _TIME_SCALE:
        problems.append(f"took {seconds:.1f} s")
    return problems


def _wait_until_seen(pid: int, signum: int) -> None:
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except FileNotFoundError:
            return
        pending = next(line for line in lines if line.startswith("ShdPnd:"))
        if not int(pending.split()[1], 16) >> (signum - 1) & 1:
            return
        time.sleep(0.01)


def _wanted(kill: Kill, word: str) -> set[int]:
    if kill.kind == "all end":
        return {0}
    if kill.kind == "rank fails":
        return {_EXIT_CODE}
    signum = signal.Signals[word.split()[0]]
    if kill.kind.startswith("rank"):
        return {128 + signum}
    # Before the launcher has its handlers, the signal ends it as any program.
    return {128 + signum, -signum, *({130, 1} if kill.early else ())}


def _pid_of_rank(command: Command, rank: int) -> int:
    variable = f"KERAS_RING_RANK={rank}".encode()
    for pid in command.alive():
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_rank = words[0] == b"sh" and words[3] == b"rank"
            if is_rank and variable in environ and os.getsid(pid) == pid:
                return pid
    raise LookupError(f"no process of rank {rank}")


def main() -> int:
    """Returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=3, help="jobs")
    arguments = parser.parse_args()
    print(f"{arguments.count} jobs of seed {arguments.seed}", flush=True)
    # A shell has what it runs in the background ignore it, and so would the
    # launchers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kills = draw(arguments.seed, arguments.count)
    wrong = 0
    started = time.monotonic()
    # They wait far more than they work.
    with ThreadPoolExecutor(arguments.at_once) as pool:
        ends = zip(kills, pool.map(run, kills), strict=True)
        for number, (kill, problems) in enumerate(ends, start=1):
            if problems:
                wrong += 1
                print(kill, *problems, sep="\n    ", flush=True)
            if number % 50 == 0:
                seconds = time.monotonic() - started
                print(f"{number} after {seconds:.0f} s", flush=True)
    seconds = time.monotonic() - started
    print(
        f"{arguments.count} jobs in {seconds:.0f} s: "
        f"{wrong} ended wrongly or left something"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
