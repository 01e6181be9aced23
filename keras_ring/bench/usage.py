"""Resource usage of this process, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

_SUM = Path("/proc/self/smaps_rollup")


def memory_bytes() -> int:
    """Returns the bytes of RAM of this process, with its share of shared pages.

    A page that several processes have mapped counts in equal parts to each of
    them (`Pss`), so that the sum over processes is their total. In `VmRSS` it
    counts in full to each of them.
    """
    for line in _SUM.read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"Pss is not in {_SUM}")
