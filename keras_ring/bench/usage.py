"""What a process uses, as Linux counts it."""

from __future__ import annotations

import contextlib
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"


def resident_bytes() -> int:
    """The memory of this process that is in RAM."""
    return _status_field("VmRSS")


def peak_resident_bytes() -> int:
    """The most that it has been since `reset_peak()`."""
    return _status_field("VmHWM")


def reset_peak() -> None:
    """Forgets the peak of the past, where the kernel allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def _status_field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"{name} is not in {_STATUS}")
