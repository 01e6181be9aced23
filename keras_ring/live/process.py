"""What the system tells about a process."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# How much later than what it has written a process may seem to have begun.
_CLOCK_SLACK_NS = 2 * 10**9


@dataclass(frozen=True)
class Process:
    """A live process.

    Args:
        parent: Process id of the one that started it.
        started_ns: When it began, by this host's `time.monotonic_ns()`.
        memory: Bytes of its memory that are in use, shared ones included.
        stopped: Whether a signal has stopped it, for a while.
    """

    parent: int
    started_ns: int
    memory: int
    stopped: bool


def look(pid: int) -> Process | None:
    """Returns what a process is now; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = text[text.rindex(b")") + 1 :].split()
        state, parent, ticks, pages = (fields[i] for i in (0, 1, 19, 21))
    except (OSError, ValueError, IndexError):
        return None
    if state in (b"Z", b"X"):
        return None
    # The system counts from its start, the time asleep included.
    asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return Process(
        parent=int(parent),
        started_ns=int(ticks) * 10**9 // _TICKS - asleep,
        memory=int(pages) * _PAGE_BYTES,
        stopped=state in (b"T", b"t"),
    )


def look_since(pid: int, started_ns: int) -> Process | None:
    """Returns a process if it is the one that had this id at that time.

    Ids are used again: whoever has begun later is another process.
    """
    found = look(pid)
    if found is None or found.started_ns > started_ns + _CLOCK_SLACK_NS:
        return None
    return found


def ancestors(pid: int) -> Iterator[int]:
    """Yields the process that started this one, and so on."""
    seen = {pid}
    while (found := look(pid)) is not None and found.parent not in seen:
        pid = found.parent
        if pid < 1:
            return
        seen.add(pid)
        yield pid
