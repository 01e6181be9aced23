"""The files of `--output-dir`, which keep the output of ranks."""

import contextlib
import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from keras_ring.launch.lost_files import LostFiles
from keras_ring.launch.rotation import RotatingFile
from keras_ring.launch.usage import UsageError

# Errors of a disk or a file server, which are not the user's mistake.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
_FOLDER = re.compile(r"rank\.([0-9]+)")
# Flight records of a rank and of its process sets.
_FLIGHT = re.compile(r"flight\.[0-9]+\.([0-9]+\.(set\.[0-9]+\.)?)?json")
_FILE = re.compile(r"std(out|err)(\.[0-9]+)?")


class OutputFile(Protocol):
    """A file that keeps the output of a rank."""

    def write(self, data: bytes, /) -> object:
        """Appends bytes."""

    def flush(self) -> None:
        """Flushes buffered bytes to the operating system."""

    def close(self) -> None:
        """Closes the file."""


class _Forgiving:
    """A file that is given up as soon as it cannot be written.

    Args:
        path: Path of the file.
        make: Function that opens the file.
        lost: `LostFiles` that records the failure.
    """

    def __init__(
        self, path: Path, make: Callable[[], OutputFile], lost: LostFiles
    ) -> None:
        self._path = path
        self._lost = lost
        self._file: OutputFile | None = None
        with self._giving_up():
            self._file = make()

    def write(self, data: bytes, /) -> None:
        if self._file is not None:
            with self._giving_up():
                self._file.write(data)

    def flush(self) -> None:
        if self._file is not None:
            with self._giving_up():
                self._file.flush()

    def close(self) -> None:
        # Some file systems report only now that there was no room.
        if self._file is not None:
            with self._giving_up():
                self._file.close()
        self._file = None

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._lost.note(self._path, error)
            file, self._file = self._file, None
            if file is not None:
                # `close` tries once more to write its buffer.
                with contextlib.suppress(OSError):
                    file.close()


@dataclass(frozen=True)
class OutputFiles:
    """The files that keep each rank's output.

    Args:
        directory: Path given to `--output-dir`. `None` for no files.
        limit: Integer, the bytes of a file, after which a new one is begun. `0`
            for no limit.
        backups: Integer, the number of full files to keep beside the current
            one.
    """

    directory: Path | None = None
    limit: int = 0
    backups: int = 0

    def prepare(self, size: int) -> None:
        """Makes the directory, and removes files of an earlier job.

        It removes the output of ranks that this job does not have; the job
        replaces that of the other ranks. It also removes all flight records,
        because not every rank writes a new one.

        Args:
            size: Integer, the number of ranks.

        Raises:
            UsageError: If the directory cannot be made.
        """
        if self.directory is None:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _OF_THE_DISK:
                # The first file that cannot be written is reported.
                return
            raise UsageError(
                f"--output-dir {self.directory}: {error.strerror}"
            ) from error
        with contextlib.suppress(OSError):
            for folder in self.directory.iterdir():
                found = _FOLDER.fullmatch(folder.name)
                if found is not None and int(found[1]) >= size:
                    _remove(folder)
            for path in self.flights(self.directory).iterdir():
                if _FLIGHT.fullmatch(path.name):
                    path.unlink()

    @staticmethod
    def flights(directory: Path) -> Path:
        """Returns the default directory of flight records."""
        return directory / "flight"

    def open(self, rank: int, name: str, lost: LostFiles) -> OutputFile | None:
        """Returns the file that keeps one stream of a rank, if there is any.

        Args:
            rank: Integer, the rank.
            name: String, `"stdout"` or `"stderr"`.
            lost: `LostFiles` that records a failure.
        """
        if self.directory is None:
            return None
        path = self.directory / f"rank.{rank}" / name
        return _Forgiving(path, lambda: self._make(path), lost)

    def _make(self, path: Path) -> OutputFile:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.limit:
            return path.open("wb")
        return RotatingFile(path, limit=self.limit, backups=self.backups)


def _remove(folder: Path) -> None:
    """Removes the output files of a rank, and no other files."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _FILE.fullmatch(path.name):
                path.unlink()
        folder.rmdir()
