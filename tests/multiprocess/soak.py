"""Trains for long and says what grows: `python -m tests.multiprocess.soak`.

`fit` with `steps_per_execution`, evaluation and checkpoints, as in
`run_fit.py`. Memory (PSS), descriptors and threads of each rank are sampled;
at the end, what they were in the first and the last third of the time after
the warm-up, and whether they are flat.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.launcher.command import Command
from tests.multiprocess.chaos import pid_of_rank

_SCRIPT = Path(__file__).with_name("run_fit.py")
_EVERY = 5.0
# The first so much of the time is warm-up.
_WARM_UP = 0.2
# Of the memory: allocators keep what they please.
_GROWTH = 0.03


def sample(pid: int) -> tuple[float, int, int]:
    """Returns PSS in MiB, number of descriptors, number of threads."""
    process = Path(f"/proc/{pid}")
    pss = next(
        int(line.split()[1])
        for line in (process / "smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    )
    return (
        pss / 1024,
        len(os.listdir(process / "fd")),
        len(os.listdir(process / "task")),
    )


def judge(samples: list[tuple[float, int, int]]) -> tuple[str, bool]:
    """Returns a line on one rank's samples, and whether they are flat."""
    samples = samples[int(len(samples) * _WARM_UP) :]
    third = max(len(samples) // 3, 1)
    parts, flat = [], True
    for index, name in enumerate(("PSS MiB", "descriptors", "threads")):
        values = [one[index] for one in samples]
        first = statistics.median(values[:third])
        last = statistics.median(values[-third:])
        allowed = first * _GROWTH if index == 0 else 0.0
        flat = flat and last - first <= allowed
        parts.append(
            f"{name} {first:.0f} -> {last:.0f} (max {max(values):.0f})"
        )
    return ", ".join(parts), flat


def main() -> int:
    """Returns 1 if something grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--ranks", type=int, default=4)
    arguments = parser.parse_args()
    samples: list[list[tuple[float, int, int]]] = [
        [] for _ in range(arguments.ranks)
    ]
    with tempfile.TemporaryDirectory(prefix="kr-soak-") as folder:
        command = Command(
            *("run", "-np", str(arguments.ranks), "--"),
            *(sys.executable, str(_SCRIPT), folder),
            str(60 * arguments.minutes),
            TF_CPP_MIN_LOG_LEVEL="3",
        )
        try:
            while command.process.poll() is None:
                time.sleep(_EVERY)
                for rank, found in enumerate(samples):
                    pid = pid_of_rank(command, rank)
                    if pid and (Path(folder) / f"here.{rank}").exists():
                        try:
                            found.append(sample(pid))
                        except (OSError, StopIteration):
                            continue  # it has just ended
            code = command.process.returncode
        finally:
            left = command.wait_until_gone(10.0)
    all_flat = True
    for rank, found in enumerate(samples):
        line, flat = judge(found)
        all_flat = all_flat and flat
        word = "flat" if flat else "GROWS"
        print(f"rank {rank}: {len(found)} samples, {line}: {word}")
    print(f"exit code {code}, {len(left)} process(es) left")
    return 0 if all_flat and code == 0 and not left else 1


if __name__ == "__main__":
    sys.exit(main())
