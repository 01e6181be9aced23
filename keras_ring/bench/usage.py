"""What a process uses, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

_SUM = Path("/proc/self/smaps_rollup")


def memory_bytes() -> int:
    """The memory of this process that is in RAM, with its share of others'.

    A page that several processes have mapped counts in equal parts to each
    (`Pss`), so that the sum over processes is what they take together. In
    `VmRSS` it counts to each of them in full.
    """
    for line in _SUM.read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"Pss is not in {_SUM}")
