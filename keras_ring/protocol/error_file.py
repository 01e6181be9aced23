"""The file by which a rank reports the exception that ended it.

`install()` is called in the rank when keras_ring starts. The launcher reads the
file.
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

from keras_ring.protocol import contract
from keras_ring.protocol.error_text import cause, one_line

# The error that reports the death of another rank.
_PEER_LOST = "UnavailableError"
# Our texts in such errors.
_LOST_RANK = re.compile(
    r"\blost ranks? [\d, -]+ \(|the job is over: rank \d+ "
    r"|\brank \d+ \(host .*\) could not start: "
)
# The size of a file at most. Longer files are not ours.
_MAX_BYTES = 64 << 20
# The suffix of a second file, which shows that the rank called `init`.
_STARTED = ".started"

# The type of `sys.excepthook`.
Show: TypeAlias = Callable[
    [type[BaseException], BaseException, TracebackType | None], object
]


class _Hook:
    """An exception hook that records the exception, then shows it.

    An exception that only reports another rank's death is shown as one line, if
    there is a launcher that reports the cause and no other hook. Otherwise the
    tracebacks of all ranks would hide the important one.
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
            # An exception in a fork does not end the rank.
            if os.getpid() != self.pid:
                return
            self.last = one_line(kind.__name__, str(error))
            path = os.environ.get(contract.ERROR_FILE)
            if path:
                noted = RankError.of(error, trace)
                _write(Path(path), noted)
                alone = self._previous is sys.__excepthook__
                if noted.peer_lost and alone and self.show is None:
                    sys.stderr.write(f"{self.last}{_location(trace)}\n")
                    shown = True
        finally:
            if self.show and self._previous is sys.__excepthook__:
                self.show(kind, error, trace)
            elif not shown:
                self._previous(kind, error, trace)


_installed: _Hook | None = None


def install() -> None:
    """Installs a hook that writes the exception that ends this process.

    The file is that of `KERAS_RING_ERROR_FILE`. Without this variable, the
    exception is only kept for `last_exception`. The previous hook still runs.
    Calling this again does not add another hook.
    """
    global _installed
    if _installed is None:
        _installed = _Hook()
        sys.excepthook = _installed
    _installed.pid = os.getpid()


def show_by(show: Show) -> None:
    """Sets the function that shows an exception that ends this process.

    Args:
        show: Function to call instead of Python's own hook. It is not called if
            the program has installed another hook before.
    """
    install()
    if _installed is not None:
        _installed.show = show


def last_exception() -> str:
    """Returns the exception that ends this process, on one line.

    Returns:
        String such as `"ValueError: no such file"`, or `""` if the process does
        not end by an exception.
    """
    return _installed.last if _installed is not None else ""


def note(error: BaseException) -> None:
    """Keeps an exception for `last_exception`, while the program goes on."""
    install()
    if _installed is not None:
        _installed.last = one_line(type(error).__name__, str(error))


def write_caught(error: "RankError") -> None:
    """Writes an exception that the program has caught before its end.

    It does not replace an uncaught exception that was written before.
    """
    path = os.environ.get(contract.ERROR_FILE)
    if path and not os.path.exists(path):
        _write(Path(path), error)


def mark_started() -> None:
    """Makes the file that shows that this rank takes part in the job."""
    path = os.environ.get(contract.ERROR_FILE)
    if path:
        with contextlib.suppress(OSError):
            open(path + _STARTED, "wb").close()


def has_started(path: Path) -> bool:
    """Returns whether the rank of an error file called `mark_started`."""
    return path.with_name(path.name + _STARTED).exists()


def _location(trace: TracebackType | None) -> str:
    """Returns the position in the program, as `" (train.py, line 3)"`."""
    frames = traceback.extract_tb(trace, limit=1)
    if not frames:
        return ""
    return f" ({frames[0].filename}, line {frames[0].lineno})"


def _chain(error: BaseException | None) -> list[str]:
    """Returns the class names of an exception and of those that led to it."""
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
        # Do not write to a file that another user may have made first, with
        # other rights or as a link.
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
        type: String, the name of the exception's class.
        message: String, its text.
        time: Float, the time at which it was recorded, in seconds since the
            epoch.
        chain: Tuple of strings, the class names of the exception and of those
            that led to it.
        traceback: String, the traceback as Python prints it.
        caught: Boolean, whether the program caught it, and ended by itself
            after that.
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
        """Returns the description of an exception, with the present time."""
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
        """Returns the error of a rank's record, or `None` if it is invalid."""
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
        """Returns whether the exception only reports the loss of a rank."""
        if _PEER_LOST in (self.type, *self.chain):
            return True
        # In a compiled function, TensorFlow makes it an `InternalError`.
        return _LOST_RANK.search(self.message) is not None

    @property
    def cause(self) -> str:
        """The text without the parts that TensorFlow adds."""
        return cause(self.message)

    def __str__(self) -> str:
        """Returns the exception on one line."""
        return one_line(self.type, self.message)


def read(path: Path) -> RankError | None:
    """Returns the error in a rank's file, or `None` if it is not readable."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            return None
        return RankError.from_record(json.loads(text))
    except (OSError, ValueError, RecursionError):
        return None
