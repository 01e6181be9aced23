"""A file that is renamed when it is full, and followed by a new one."""

import contextlib
import os
import re
from pathlib import Path
from typing import BinaryIO

from keras_ring.launch.usage import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MAX_BACKUPS = 1000
# Bytes of a line that is held back until it is complete; a longer one is cut.
_MAX_HELD = 1 << 20


def parse_limit(text: str) -> int:
    """Returns the number of bytes of a size such as `100M`.

    Raises:
        UsageError: If it is malformed.
    """
    found = _SIZE.fullmatch(text)
    limit = int(found[1]) * _UNITS[found[2].upper()] if found else 0
    if limit < 1:
        raise UsageError(
            f"--output-max-bytes {text!r}: expected a number of bytes, at"
            " least 1, for example 500000, 64K, 100M or 2G"
        )
    return limit


def check_backups(count: int) -> int:
    """Returns a value of `--output-backups` if it is valid.

    Raises:
        UsageError: If it is out of range.
    """
    if not 0 <= count <= _MAX_BACKUPS:
        raise UsageError(
            f"--output-backups {count}: expected a number of files from 0 to"
            f" {_MAX_BACKUPS}"
        )
    return count


class RotatingFile:
    """A file of lines with a limited size; `name.1` holds the lines before it.

    A line is not split between two files, unless it is longer than a file or
    than 1 MiB: the last line is held back until it is complete. Files of an
    earlier job are replaced.

    Args:
        path: Path of the current file.
        limit: Integer, the bytes of each file.
        backups: Integer, the number of full files to keep beside the current
            one.
    """

    def __init__(self, path: Path, *, limit: int, backups: int) -> None:
        self._path = path
        self._limit = limit
        self._backups = backups
        self._held = bytearray()
        self._kept = 0
        for number in range(1, _MAX_BACKUPS + 1):
            try:
                self._backup(number).unlink()
            except FileNotFoundError:
                break
        self._file = self._open()

    def write(self, data: bytes) -> None:
        """Appends bytes to the file."""
        self._held += data
        whole = self._held.rfind(b"\n") + 1
        if len(self._held) - whole >= min(self._limit, _MAX_HELD):
            whole = len(self._held)
        self._write_lines(self._take(whole))

    def flush(self) -> None:
        """Flushes written bytes to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Writes the line that was held back, and closes the file."""
        try:
            self._write_lines(self._take(len(self._held)))
        finally:
            self._file.close()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def _write_lines(self, data: bytes) -> None:
        """Writes lines, and begins a new file whenever one is full."""
        start = 0
        while start < len(data):
            room = self._limit - self._size
            end = len(data)
            if end - start > room:
                # The lines that fit, or a part of a line that fits in no file.
                end = max(start, data.rfind(b"\n", start, start + room) + 1)
                if end == start and room == self._limit:
                    end = start + room
            self._file.write(data[start:end])
            self._size += end - start
            start = end
            if start < len(data):
                self._rotate()

    def _rotate(self) -> None:
        self._file.close()
        self._kept = min(self._kept + 1, self._backups)
        for number in range(self._kept, 0, -1):
            older = self._backup(number)
            newer = self._backup(number - 1) if number > 1 else self._path
            # Another program may have removed it.
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        self._file = self._open()

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> BinaryIO:
        self._size = 0
        return self._path.open("wb")
