"""The ranks' output: whole lines with a prefix, written without blocking."""

import os
import select
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from keras_ring.launcher.lost_files import LostFiles
from keras_ring.launcher.output_files import OutputFile

_MAX_LINE = 64 * 1024
_MAX_TAIL_LINE = 400
_TAIL_LINES = 20
# A pipe that is ready takes this many bytes at once (PIPE_BUF).
_MAX_WRITE = 4096
_FULL = 1024 * 1024


class LineSplitter:
    """Cuts a stream of bytes into lines.

    A carriage return ends a line as well: progress bars use it alone. Of
    several such updates that arrive together only the last one is kept. Bytes
    stay bytes, as a rank may print what is not UTF-8.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._after_return = False

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that these bytes complete."""
        lines: list[bytes] = []
        pieces = (self._rest + data).splitlines(keepends=True)
        self._rest = b""
        for piece in pieces:
            line = piece.rstrip(b"\r\n")
            if len(line) == len(piece):
                self._rest = piece
            else:
                self._add(lines, line, piece[len(line) :])
        while len(self._rest) > _MAX_LINE:
            # Held back any longer, a line without end would fill the memory.
            self._add(lines, self._rest[:_MAX_LINE], b"\n")
            self._rest = self._rest[_MAX_LINE:]
        return lines

    def _add(self, lines: list[bytes], line: bytes, end: bytes) -> None:
        if not line and self._after_return:
            # "\r", then "\n": the line is already out.
            self._after_return = end == b"\r"
            return
        if self._after_return and lines:
            lines[-1] = line
        else:
            lines.append(line)
        self._after_return = end == b"\r"

    def finish(self) -> list[bytes]:
        """Returns the last line if the stream ended in the middle of it."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Tail:
    """Keeps the last lines of a rank."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_TAIL_LINES)

    def add(self, line: bytes) -> None:
        """Takes note of a line."""
        self._lines.append(line[:_MAX_TAIL_LINE])

    def text(self) -> list[str]:
        """Returns the last lines; what is not UTF-8 is escaped."""
        return [
            line.decode("utf-8", "backslashreplace") for line in self._lines
        ]


class Sink:
    """Writes to a descriptor that may be slow, such as a pipe to `less`.

    A blocked write would stop the launcher from looking after its ranks, and
    O_NONBLOCK would be set for every process that shares the terminal. So
    bytes wait here, and go out in pieces that a ready descriptor takes.

    Args:
        fd: The descriptor; it stays open.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.always_ready = _always_ready(fd)
        self._waiting = bytearray()
        self._lost = LostFiles()

    @property
    def empty(self) -> bool:
        """Whether everything has been written."""
        return not self._waiting

    @property
    def full(self) -> bool:
        """Whether so much is waiting that ranks should be held up."""
        return len(self._waiting) > _FULL

    def put(self, text: bytes) -> None:
        """Adds bytes to what is to be written."""
        self._waiting += text

    def discard(self) -> None:
        """Drops what was not written."""
        self._waiting.clear()

    def write_some(self) -> None:
        """Writes one piece; call it when the descriptor is ready."""
        piece = self._waiting[:_MAX_WRITE]
        # Whole lines where possible: the other stream may share a terminal.
        end = piece.rfind(b"\n") + 1 or len(piece)
        del self._waiting[: os.write(self.fd, piece[:end])]

    def write_all(self) -> None:
        """Writes everything, to descriptors that do not block."""
        while self._waiting:
            self.write_some()

    def write(self) -> bool:
        """Writes what the descriptor takes; call it when that is ready.

        A file that cannot be written loses what it does not take.

        Returns:
            Whether somebody may still read what is written.
        """
        try:
            if self.always_ready:
                self.write_all()
            else:
                self.write_some()
        except OSError as error:
            self.discard()
            if not self.always_ready:
                return False
            self._lost.note(_name_of(self.fd), error)
        return True


def _always_ready(fd: int) -> bool:
    """Whether a descriptor, as one of a file, cannot be waited for."""
    with select.epoll() as probe:
        try:
            probe.register(fd, select.EPOLLOUT)
        except PermissionError:
            return True
    return False


def _name_of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"to descriptor {fd}"


class Line(NamedTuple):
    """A line of a rank."""

    text: bytes
    """What it says."""
    shown: bytes
    """As what it is shown, but for its rank."""


class RankStream:
    """One output stream of one rank, on its way to where it is shown.

    Args:
        show: Takes each line.
        file: Gets the bytes as they are; None for no file.
        record: Makes something else of each line, which then goes to the file
            as well. Defaults to nothing else.
    """

    def __init__(
        self,
        show: Callable[[Line], None],
        file: OutputFile | None = None,
        record: Callable[[bytes], Line] | None = None,
    ) -> None:
        self._show = show
        self._file = file
        self._record = record
        self._splitter = LineSplitter()

    def feed(self, data: bytes) -> None:
        """Takes what has arrived."""
        if self._file is not None and self._record is None:
            self._file.write(data)
            self._file.flush()
        self._show_all(self._splitter.feed(data))

    def finish(self) -> None:
        """Shows the last line and closes the file."""
        self._show_all(self._splitter.finish())
        if self._file is not None:
            self._file.close()

    def _show_all(self, lines: list[bytes]) -> None:
        if self._record is None:
            for line in lines:
                self._show(Line(line, line))
            return
        made = [self._record(line) for line in lines]
        if self._file is not None:
            self._file.write(b"".join(line.shown + b"\n" for line in made))
            self._file.flush()
        for each in made:
            self._show(each)


@dataclass(frozen=True)
class PipedStream:
    """A stream that comes through a pipe.

    Args:
        fd: The reading end.
        sink: Where its lines go in the end.
        stream: Takes what is read.
    """

    fd: int
    sink: Sink
    stream: RankStream

    def read(self) -> bool:
        """Takes what has arrived; returns False at the end of the stream."""
        data = os.read(self.fd, 64 * 1024)
        self.stream.feed(data)
        return bool(data)
