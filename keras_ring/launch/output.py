"""The ranks' output: whole lines with a prefix, written without blocking."""

import os
import select
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from keras_ring.launch.lost_files import LostFiles
from keras_ring.launch.output_files import OutputFile

_MAX_LINE = 64 * 1024
_MAX_TAIL_LINE = 400
_TAIL_LINES = 20
# A pipe that is ready takes this many bytes at once (PIPE_BUF).
_MAX_WRITE = 4096
_FULL = 1024 * 1024


class LineSplitter:
    """A parser that cuts a stream of bytes into lines.

    A carriage return ends a line as well, because progress bars use it alone.
    If several such updates arrive together, only the last one is kept. Lines
    are bytes, because a rank may print text that is not UTF-8.
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
            # Without this limit, a line without end would fill the memory.
            self._add(lines, self._rest[:_MAX_LINE], b"\n")
            self._rest = self._rest[_MAX_LINE:]
        return lines

    def _add(self, lines: list[bytes], line: bytes, end: bytes) -> None:
        if not line and self._after_return:
            # "\r", then "\n": the line has been returned already.
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
    """The last lines of a rank."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_TAIL_LINES)

    def add(self, line: bytes) -> None:
        """Adds a line."""
        self._lines.append(line[:_MAX_TAIL_LINE])

    def text(self) -> list[str]:
        """Returns the last lines, with bytes that are not UTF-8 escaped."""
        return [
            line.decode("utf-8", "backslashreplace") for line in self._lines
        ]


class Sink:
    """A buffered writer to a descriptor that may be slow, such as a pipe.

    A blocked write would keep the launcher from watching its ranks, and
    O_NONBLOCK would be set for every process that shares the terminal. So bytes
    wait in a buffer, and are written in pieces that a ready descriptor takes.

    Args:
        fd: Integer, the descriptor, which stays open.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.always_ready = _always_ready(fd)
        self._waiting = bytearray()
        self._lost = LostFiles()

    @property
    def empty(self) -> bool:
        """Returns whether all bytes have been written."""
        return not self._waiting

    @property
    def full(self) -> bool:
        """Returns whether so many bytes wait that ranks should wait, too."""
        return len(self._waiting) > _FULL

    def put(self, text: bytes) -> None:
        """Adds bytes to the buffer."""
        self._waiting += text

    def discard(self) -> None:
        """Drops the bytes that have not been written."""
        self._waiting.clear()

    def write_some(self) -> None:
        """Writes one piece. Call it when the descriptor is ready."""
        piece = self._waiting[:_MAX_WRITE]
        # Write whole lines if possible: the other stream may share the
        # terminal.
        end = piece.rfind(b"\n") + 1 or len(piece)
        del self._waiting[: os.write(self.fd, piece[:end])]

    def write_all(self) -> None:
        """Writes all bytes, to a descriptor that does not block."""
        while self._waiting:
            self.write_some()

    def write(self) -> bool:
        """Writes bytes that wait. Call it when the descriptor is ready.

        If the write fails, the bytes are dropped. For a file, the loss is
        reported.

        Returns:
            Boolean, whether a reader may still be there. Always `True` for a
            file.
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
    """Returns whether one cannot wait for a descriptor, such as a file."""
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
    """The message."""
    shown: bytes
    """The line to show, without the prefix of the rank."""


class RankStream:
    """One output stream of one rank, cut into lines to show.

    Args:
        show: Function called with each line.
        file: `OutputFile` to which the output is written. `None` for no file.
        record: Function that converts each line; the result is written to the
            file as well. By default, lines are not converted, and the file gets
            the original bytes.
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
        """Processes bytes that have arrived."""
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
        fd: Integer, the descriptor of the reading end.
        sink: `Sink` to which its lines are written in the end.
        stream: `RankStream` that gets the bytes.
    """

    fd: int
    sink: Sink
    stream: RankStream

    def read(self) -> bool:
        """Reads bytes that have arrived. Returns `False` at the end."""
        data = os.read(self.fd, 64 * 1024)
        self.stream.feed(data)
        return bool(data)
