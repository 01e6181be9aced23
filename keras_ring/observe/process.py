"""State of a process, as the system reports it."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Tolerance for a process that seems to have begun after its own writes.
_CLOCK_SLACK_NS = 2 * 10**9


@dataclass(frozen=True)
class Process:
    """A live process.

    Args:
        parent: Process id of its parent.
        started_ns: Time at which it began, by this host's
            `time.monotonic_ns()`.
        memory: Bytes of memory that it uses, including shared memory.
        stopped: Boolean, whether it is stopped by a signal.
    """

    parent: int
    started_ns: int
    memory: int
    stopped: bool


def look(pid: int) -> Process | None:
    """Returns the current state of a process, or `None` if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = text[text.rindex(b")") + 1 :].split()
        state, parent, ticks, pages = (fields[i] for i in (0, 1, 19, 21))
    except (OSError, ValueError, IndexError):
        return None
    if state in (b"Z", b"X"):
        return None
    # The system counts from its boot and includes suspended time.
    asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return Process(
        parent=int(parent),
        started_ns=int(ticks) * 10**9 // _TICKS - asleep,
        memory=int(pages) * _PAGE_BYTES,
        stopped=state in (b"T", b"t"),
    )


def look_since(pid: int, started_ns: int) -> Process | None:
    """Returns a process if it has had this id since a given time.

    Ids are reused: if the process has begun later, it is another one.
    """
    found = look(pid)
    if found is None or found.started_ns > started_ns + _CLOCK_SLACK_NS:
        return None
    return found


def ancestors(pid: int) -> Iterator[int]:
    """Yields the ids of the ancestors of a process, the nearest first."""
    seen = {pid}
    while (found := look(pid)) is not None and found.parent not in seen:
        pid = found.parent
        if pid < 1:
            return
        seen.add(pid)
        yield pid
