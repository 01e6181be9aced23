"""Reads the status page of a rank.

Only this user can write to the directory, but a file there may be incomplete,
of another version, or not a page at all. Such a file is ignored without an
error.
The layout is that of `csrc/runtime/diagnostics/status_page.h`.
"""

import json
import os
import stat
import struct
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keras_ring.observe import process

NUM_BYTES = 16384
MAGIC = b"KRSTATUS"
VERSION = 1
TEXT_OFFSET = 64
COUNTERS_OFFSET = 8192
ERROR_OFFSET = 12288
_HEADER = struct.Struct("<8sII")
_COUNTER = struct.Struct("<Q")
_ERROR = struct.Struct("<II")
_MAX_ERROR = 1016
# Writing an error takes no time. If it seems to take longer, the rank was
# killed while it wrote.
_ERROR_ATTEMPTS = 3
_MAX_RANKS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Page:
    """Snapshot of the status page of a rank.

    Args:
        rank: Index of the rank.
        size: Number of ranks of its job.
        local_rank: Its index among the ranks of its host.
        host: Name of its host.
        pid: Its process id on that host.
        job: Name of the job.
        command: The command that it runs.
        cwd: Its working directory.
        started_unix_ns: Time at which it joined the job, in ns since the epoch.
        started_ns: The same time by the steady clock of its host.
        read_ns: Time at which the page was read, by the same clock.
        alive: Boolean, whether its process lives.
        stopped: Boolean, whether its process is stopped by a signal.
        memory: Bytes of memory that the process uses; 0 if it has ended.
        counters: Counters of `kr.metrics()` by name.
        units: Units of the counters by name.
        error: The last error of the rank; `""` for none.
    """

    rank: int
    size: int
    local_rank: int
    host: str
    pid: int
    job: str
    command: str
    cwd: str
    started_unix_ns: int
    started_ns: int
    read_ns: int
    alive: bool = True
    stopped: bool = False
    memory: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    def unix_ns(self, steady_ns: int) -> int:
        """Converts a time of its host's steady clock to ns since the epoch."""
        return self.started_unix_ns + steady_ns - self.started_ns

    def to_record(self) -> dict[str, Any]:
        """Returns the page as a JSON object."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Any) -> "Page | None":
        """Returns the page that `to_record` has encoded, or `None`."""
        if not isinstance(record, dict):
            return None
        try:
            return cls(**record)
        except TypeError:
            return None


def read_page(path: Path) -> Page | None:
    """Returns the page in a file, or `None` if it is no page of this user."""
    data = _read(path)
    if data is None:
        return None
    try:
        magic, version, length = _HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            return None
        if length > COUNTERS_OFFSET - TEXT_OFFSET:
            return None
        told = json.loads(data[TEXT_OFFSET : TEXT_OFFSET + length])
        page = _page(told, data, _last_error(path, data))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    at_home = path.name == f"rank.{page.rank}.{page.pid}.page"
    return page if at_home and path.parent.name == page.job else None


def _read(path: Path) -> bytes | None:
    """Returns the bytes of a file if only this user can change it."""
    try:
        # O_NONBLOCK, because the file may be a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o022:
            return None
        if found.st_uid != os.geteuid():
            return None
        data = os.pread(fd, NUM_BYTES, 0)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) == NUM_BYTES else None


def _page(told: Any, data: bytes, error: str) -> Page:
    numbers = {
        name: int(told[name])
        for name in (
            *("rank", "size", "local_rank", "pid"),
            *("started_unix_ns", "started_ns"),
        )
    }
    if not 0 <= numbers["rank"] < numbers["size"] <= _MAX_RANKS:
        raise ValueError("no such rank")
    counters, units = {}, {}
    for name, unit, offset in told["counters"]:
        if not COUNTERS_OFFSET <= offset <= ERROR_OFFSET - _COUNTER.size:
            raise ValueError("a counter that is elsewhere")
        (counters[str(name)],) = _COUNTER.unpack_from(data, offset)
        units[str(name)] = str(unit)
    found = process.look_since(numbers["pid"], numbers["started_ns"])
    return Page(
        **numbers,
        host=_printable(told["host"]),
        job=str(told["job"]),
        command=_printable(told["command"]),
        cwd=_printable(told["cwd"]),
        read_ns=time.monotonic_ns(),
        alive=found is not None,
        stopped=found is not None and found.stopped,
        memory=0 if found is None else found.memory,
        counters=counters,
        units=units,
        error=_printable(error),
    )


def _last_error(path: Path, data: bytes) -> str:
    for _ in range(_ERROR_ATTEMPTS):
        sequence, length = _ERROR.unpack_from(data, ERROR_OFFSET)
        if not length:
            return ""
        again = _read(path)
        if again is None:
            return ""
        # The number is odd during a write, and has increased after it.
        same = _ERROR.unpack_from(again, ERROR_OFFSET) == (sequence, length)
        if same and sequence % 2 == 0:
            begin = ERROR_OFFSET + _ERROR.size
            text = data[begin : begin + min(length, _MAX_ERROR)]
            return text.decode("utf-8", "replace")
        data = again
    return ""


def _printable(text: Any) -> str:
    """Returns a text without control characters, safe for a terminal."""
    return "".join(c if c.isprintable() else " " for c in str(text))
