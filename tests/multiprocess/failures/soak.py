"""Trains for long and says what grows.

    python -m tests.multiprocess.failures.soak

`fit` with `steps_per_execution`, evaluation and checkpoints, as in
`run_fit.py`. Memory, descriptors and threads of each rank are sampled, after a
warm-up. First, the same program trains alone, with plain Keras: what grows
there with every epoch (saving a model leaves some memory behind) may grow in
the rank that saves, too.

Memory is what a process has for itself, and its part of what it shares with
other ranks. Pages of files are left out: how they are counted depends on who
else on the host has imported TensorFlow.
"""

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.launcher.command import Command

_SCRIPT = Path(__file__).with_name("run_fit.py")
_EVERY = 2.0
# The first so much of the time is warm-up.
_WARM_UP = 0.2
# Of the memory, in all: allocators keep what they please.
_GROWTH = 0.03
# How much more per epoch than alone.
_SAME = 1.25


@dataclasses.dataclass
class Sample:
    """What a process has.

    Args:
        epoch: How many it has trained.
        memory: MiB.
        descriptors: Number of open ones.
        threads: Number.
    """

    epoch: int
    memory: float
    descriptors: int
    threads: int


def sample(pid: int, epochs: Path) -> Sample:
    """Returns what process `pid` has; `epochs` is the file that it writes."""
    process = Path(f"/proc/{pid}")
    parts = {
        line.split(":")[0]: line.split()[1]
        for line in (process / "smaps_rollup").read_text().splitlines()[1:]
    }
    return Sample(
        int(epochs.read_text() or 0),
        (int(parts["Pss_Anon"]) + int(parts["Pss_Shmem"])) / 1024,
        len(os.listdir(process / "fd")),
        len(os.listdir(process / "task")),
    )


def growth(samples: list[Sample]) -> float:
    """Returns the MiB that an epoch adds, after the warm-up."""
    samples = samples[int(len(samples) * _WARM_UP) :]
    epochs = [float(one.epoch) for one in samples]
    if len(set(epochs)) < 2:
        return 0.0
    memory = [one.memory for one in samples]
    return statistics.linear_regression(epochs, memory).slope


def judge(samples: list[Sample], allowed: float) -> tuple[str, bool]:
    """Returns a line on one rank's samples, and whether they are flat.

    Args:
        samples: In the order of time.
        allowed: MiB per epoch that do not count.
    """
    if not samples:
        return "it never trained", False
    slope = growth(samples)
    samples = samples[int(len(samples) * _WARM_UP) :]
    third = max(len(samples) // 3, 1)
    parts, flat = [], True
    for name in ("memory", "descriptors", "threads"):
        values = [getattr(one, name) for one in samples]
        first = statistics.median(values[:third])
        last = statistics.median(values[-third:])
        excess = last - first
        if name == "memory":
            epochs = samples[-1].epoch - samples[0].epoch
            excess = (slope - allowed) * epochs - first * _GROWTH
        flat = flat and excess <= 0
        parts.append(
            f"{name} {first:.0f} -> {last:.0f} (max {max(values):.0f})"
        )
    parts.append(f"{1024 * slope:.1f} KiB per epoch")
    return ", ".join(parts), flat


def alone(minutes: float) -> list[Sample]:
    """Returns samples of a process that trains with plain Keras."""
    found: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="kr-soak-") as folder:
        process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), folder, str(60 * minutes), "alone"],
            env={
                **os.environ,
                "KERAS_RING_ZERO_COPY": "0",
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
        )
        try:
            while process.poll() is None:
                time.sleep(_EVERY)
                _sample_into(found, process.pid, Path(folder) / "here.0")
        finally:
            process.kill()
            process.wait()
    return found


def ranks(
    number: int, minutes: float
) -> tuple[list[list[Sample]], int, list[int]]:
    """Returns samples of each rank, the exit code and processes left."""
    found: list[list[Sample]] = [[] for _ in range(number)]
    with tempfile.TemporaryDirectory(prefix="kr-soak-") as folder:
        command = Command(
            *("run", "-np", str(number), "--"),
            *(sys.executable, str(_SCRIPT), folder, str(60 * minutes)),
            TF_CPP_MIN_LOG_LEVEL="3",
        )
        try:
            while command.process.poll() is None:
                time.sleep(_EVERY)
                for rank in range(number):
                    pid = pid_of_rank(command, rank)
                    if pid:
                        here = Path(folder) / f"here.{rank}"
                        _sample_into(found[rank], pid, here)
            code = command.process.returncode
        finally:
            left = command.wait_until_gone(10.0)
    return found, code, left


def pid_of_rank(command: Command, rank: int) -> int | None:
    """Returns the process of a rank: the leader of its session."""
    variable = f"KERAS_RING_RANK={rank}".encode()
    for pid in command.alive():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if variable in environment.split(b"\0") and os.getsid(pid) == pid:
                return pid
        except OSError:
            continue  # it has just ended
    return None


def _sample_into(found: list[Sample], pid: int, epochs: Path) -> None:
    try:
        found.append(sample(pid, epochs))
    except (OSError, KeyError, ValueError):
        return  # it does not train yet, or has just ended


def main() -> int:
    """Returns 1 if something grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--alone-minutes", type=float, default=5.0)
    parser.add_argument("--ranks", type=int, default=4)
    arguments = parser.parse_args()
    plain = alone(arguments.alone_minutes)
    line, _ = judge(plain, 0.0)
    print(f"alone: {len(plain)} samples, {line}", flush=True)
    allowed = max(growth(plain), 0.0) * _SAME
    found, code, left = ranks(arguments.ranks, arguments.minutes)
    all_flat = True
    for rank, samples in enumerate(found):
        line, flat = judge(samples, allowed if rank == 0 else 0.0)
        all_flat = all_flat and flat
        word = "flat" if flat else "GROWS"
        print(f"rank {rank}: {len(samples)} samples, {line}: {word}")
    print(f"exit code {code}, {len(left)} process(es) left")
    return 0 if all_flat and code == 0 and not left else 1


if __name__ == "__main__":
    sys.exit(main())
