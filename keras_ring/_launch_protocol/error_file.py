"""How a rank tells the launcher which exception ended it.

This part runs inside the rank: `install()` is called when keras_ring starts.
"""

import contextlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from keras_ring._launch_protocol import contract
from keras_ring._launch_protocol.error_text import cause, one_line

# TensorFlow's error for a lost peer: it tells of another rank's death.
_PEER_LOST = "UnavailableError"
# And its words, which are ours.
_LOST_RANK = re.compile(
    r"\blost ranks? [\d, -]+ \(|the job is over: rank \d+ "
    r"|\brank \d+ \(host .*\) could not start: "
)
# Of a file. Longer ones are none of ours.
_MAX_BYTES = 64 << 20
# What is added to a file's name to say that its rank called `init`.
_STARTED = ".started"

# As `sys.excepthook`.
Show: TypeAlias = Callable[
    [type[BaseException], BaseException, TracebackType | None], object
]


class _Hook:
    """Takes note of the fatal exception, then hands it on.

    An exception that only tells of another rank's death is one line, where a
    launcher tells the cause and nobody else has hooked in: as many tracebacks
    as there are ranks would bury the one that matters.
    """

    def __init__(self) -> None:
        self.last = ""
        self.pid = os.getpid()
        self.show: Show | None = None
        self._previous = sys.excepthook

    def __call__(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        shown = False
        try:
            # A process that the rank has forked does not end the rank.
            if os.getpid() != self.pid:
                return
            self.last = one_line(kind.__name__, str(error))
            path = os.environ.get(contract.ERROR_FILE)
            if path:
                noted = RankError.of(error, trace)
                _write(Path(path), noted)
                alone = self._previous is sys.__excepthook__
                if noted.peer_lost and alone and self.show is None:
                    sys.stderr.write(f"{self.last}{_place(trace)}\n")
                    shown = True
        finally:
            if self.show and self._previous is sys.__excepthook__:
                self.show(kind, error, trace)
            elif not shown:
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


def show_by(show: Show) -> None:
    """Has an exception that ends this process shown by something else.

    Args:
        show: Is called in place of Python's own hook, if nobody else has
            hooked in.
    """
    install()
    if _installed is not None:
        _installed.show = show


def last_exception() -> str:
    """Returns the exception that ends this process, on one line.

    Returns:
        Text such as `"ValueError: no such file"`, or `""` when the process
        does not end by an exception.
    """
    return _installed.last if _installed is not None else ""


def note(error: BaseException) -> None:
    """Keeps an exception for `last_exception`, of a program that goes on."""
    install()
    if _installed is not None:
        _installed.last = one_line(type(error).__name__, str(error))


def write_caught(error: "RankError") -> None:
    """Writes an exception that the program has caught, as it ends.

    One that was not caught, and was written before, counts more.
    """
    path = os.environ.get(contract.ERROR_FILE)
    if path and not os.path.exists(path):
        _write(Path(path), error)


def mark_started() -> None:
    """Tells the launcher that this rank takes part in the job."""
    path = os.environ.get(contract.ERROR_FILE)
    if path:
        with contextlib.suppress(OSError):
            open(path + _STARTED, "wb").close()


def has_started(path: Path) -> bool:
    """Whether the rank that has this file called `mark_started`."""
    return path.with_name(path.name + _STARTED).exists()


def _place(trace: TracebackType | None) -> str:
    """Returns where the program was, such as `" (train.py, line 3)"`."""
    frames = traceback.extract_tb(trace, limit=1)
    if not frames:
        return ""
    return f" ({frames[0].filename}, line {frames[0].lineno})"


def _chain(error: BaseException | None) -> list[str]:
    """Names the types of an exception and of those that led to it."""
    names: list[str] = []
    while error is not None and len(names) < 20:
        names.append(type(error).__name__)
        error = error.__cause__ or error.__context__
    return names


def _write(path: Path, error: "RankError") -> None:
    rank = int(os.environ.get(contract.RANK, "0"))
    record = {"rank": rank, **asdict(error)}
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
        caught: Whether the program caught it, and ended by itself after that.
    """

    type: str
    message: str
    time: float
    chain: tuple[str, ...] = ()
    traceback: str = ""
    caught: bool = False

    @classmethod
    def of(
        cls, error: BaseException, trace: TracebackType | None
    ) -> "RankError":
        """Describes an exception that is just ending this rank."""
        lines = traceback.format_exception(type(error), error, trace)
        return cls(
            type=type(error).__name__,
            message=str(error),
            time=time.time(),
            chain=tuple(_chain(error)),
            traceback="".join(lines),
        )

    @classmethod
    def from_record(cls, record: object) -> "RankError | None":
        """Returns what a rank has written; None if that is no error."""
        try:
            fields: Any = record
            return cls(
                type=str(fields["type"]),
                message=str(fields["message"]),
                time=float(fields["time"]),
                chain=tuple(str(name) for name in fields.get("chain", ())),
                traceback=str(fields.get("traceback", "")),
                caught=fields.get("caught") is True,
            )
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
        ):
            return None

    @property
    def peer_lost(self) -> bool:
        """Whether the exception only tells that another rank was lost."""
        if _PEER_LOST in (self.type, *self.chain):
            return True
        # Of a compiled function TensorFlow makes it an `InternalError`.
        return _LOST_RANK.search(self.message) is not None

    @property
    def cause(self) -> str:
        """Its text without TensorFlow's framing."""
        return cause(self.message)

    def __str__(self) -> str:
        """Returns the exception on one line."""
        return one_line(self.type, self.message)


def read(path: Path) -> RankError | None:
    """Returns what a rank wrote, None when there is nothing readable."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            return None
        return RankError.from_record(json.loads(text))
    except (OSError, ValueError, RecursionError):
        return None
