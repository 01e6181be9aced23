"""How a rank tells the launcher which exception ended it.

This part runs inside the rank: `install()` is called when keras_ring starts.
"""

import json
import os
import re
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from keras_ring.launcher import contract

# TensorFlow's error for a lost peer: it tells of another rank's death.
_PEER_LOST = "UnavailableError"
# And its words, which are ours.
_LOST_RANK = re.compile(
    r"\blost rank \d+ \(|the job is over: rank \d+ "
    r"|\brank \d+ \(host .*\) could not start: "
)
# Of a file. Longer ones are none of ours.
_MAX_BYTES = 64 << 20


class _Hook:
    """Takes note of the fatal exception, then hands it on."""

    def __init__(self) -> None:
        self.last = ""
        self.pid = os.getpid()
        self._previous = sys.excepthook

    def __call__(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        try:
            # A process that the rank has forked does not end the rank.
            if os.getpid() != self.pid:
                return
            self.last = one_line(kind, error)
            path = os.environ.get(contract.ERROR_FILE)
            if path:
                _write(Path(path), kind, error, trace)
        finally:
            self._previous(kind, error, trace)


_installed: _Hook | None = None


def install() -> None:
    """Notes the exception that ends this process, and writes it to a file.

    The file is that of `KERAS_RING_ERROR_FILE`; without it the exception is
    only kept for `last_exception`. The hook that was there before still runs.
    Calling this again changes nothing.
    """
    global _installed
    if _installed is None:
        _installed = _Hook()
        sys.excepthook = _installed
    _installed.pid = os.getpid()


def last_exception() -> str:
    """Returns the exception that ends this process, on one line.

    Returns:
        Text such as `"ValueError: no such file"`, or `""` when the process
        does not end by an exception.
    """
    return _installed.last if _installed is not None else ""


def one_line(kind: type[BaseException], error: BaseException) -> str:
    """Returns an exception as one line of at most 500 characters."""
    text = " ".join(str(error).split())
    return (f"{kind.__name__}: {text}" if text else kind.__name__)[:500]


def _chain(error: BaseException | None) -> list[str]:
    """Names the types of an exception and of those that led to it."""
    names: list[str] = []
    while error is not None and len(names) < 20:
        names.append(type(error).__name__)
        error = error.__cause__ or error.__context__
    return names


def _write(
    path: Path,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    record = {
        "rank": int(os.environ.get(contract.RANK, "0")),
        "type": kind.__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(kind, error, trace)),
        "time": time.time(),
        "chain": _chain(error),
    }
    # Renamed into place, so that the launcher never reads half a file.
    part = path.with_name(path.name + ".part")
    try:
        # A name that others may have put there first, with rights of its own
        # or as a link to elsewhere, is not written to.
        part.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(part, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(part, path)
    except OSError as failure:
        # The exception itself is still printed by the hook that follows.
        sys.stderr.write(f"keras-ring: cannot write {path}: {failure}\n")


@dataclass(frozen=True)
class RankError:
    """The exception that ended a rank, as read by the launcher.

    Args:
        type: Name of the exception's class.
        message: Its text.
        time: When it was noted, in seconds since the epoch.
        chain: Class names of the exception and of those that led to it.
        traceback: As Python prints it.
    """

    type: str
    message: str
    time: float
    chain: tuple[str, ...] = ()
    traceback: str = ""

    @property
    def peer_lost(self) -> bool:
        """Whether the exception only tells that another rank was lost."""
        if _PEER_LOST in (self.type, *self.chain):
            return True
        # Of a compiled function TensorFlow makes it an `InternalError`.
        return _LOST_RANK.search(self.message) is not None

    def __str__(self) -> str:
        """Returns the exception on one line."""
        text = " ".join(self.message.split())
        return f"{self.type}: {text}" if text else self.type


def read(path: Path) -> RankError | None:
    """Returns what a rank wrote, None when there is nothing readable."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            return None
        record = json.loads(text)
        return RankError(
            type=str(record["type"]),
            message=str(record["message"]),
            time=float(record["time"]),
            chain=tuple(str(name) for name in record.get("chain", ())),
            traceback=str(record.get("traceback", "")),
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ):
        return None
