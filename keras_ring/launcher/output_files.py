"""The files of `--output-dir`, which keep what ranks print."""

import contextlib
import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from keras_ring.launcher.lost_files import LostFiles
from keras_ring.launcher.rotation import RotatingFile
from keras_ring.launcher.usage import UsageError

# Of a disk or of its server, which are not the user's mistake.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
_FOLDER = re.compile(r"rank\.([0-9]+)")
# Of a rank, and of a process set.
_FLIGHT = re.compile(r"flight\.[0-9]+\.([0-9]+\.(set\.[0-9]+\.)?)?json")
_FILE = re.compile(r"std(out|err)(\.[0-9]+)?")


class OutputFile(Protocol):
    """A file that keeps what a rank prints."""

    def write(self, data: bytes, /) -> object:
        """Adds bytes."""

    def flush(self) -> None:
        """Has the system take them."""

    def close(self) -> None:
        """Ends the file."""


class _Forgiving:
    """A file that is given up as soon as it cannot be written.

    Args:
        path: Of the file.
        make: Opens it.
        lost: Is told of the failure.
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
        # Some file systems tell only now that there was no room.
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
                # Which tries once more to write what is in its buffer.
                with contextlib.suppress(OSError):
                    file.close()


@dataclass(frozen=True)
class OutputFiles:
    """Where each rank's output is kept.

    Args:
        directory: That of `--output-dir`; None for no files.
        limit: Bytes of a file, which is then followed by another; 0 for no
            limit.
        backups: How many files are kept beside the one that is written to.
    """

    directory: Path | None = None
    limit: int = 0
    backups: int = 0

    def prepare(self, size: int) -> None:
        """Makes the directory; removes what an earlier job has left.

        That is the output of ranks that this job has not, as it replaces that
        of the others; and all flight records, which not every rank replaces.

        Args:
            size: Number of ranks.

        Raises:
            UsageError: If the directory cannot be one.
        """
        if self.directory is None:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _OF_THE_DISK:
                # Told of the first file.
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
        """Returns where flight records go, unless the user says."""
        return directory / "flight"

    def open(self, rank: int, name: str, lost: LostFiles) -> OutputFile | None:
        """Returns the file that keeps one stream of a rank, if there is any.

        Args:
            rank: Index of the rank.
            name: `"stdout"` or `"stderr"`.
            lost: Is told if it cannot be written.
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
    """Removes what a job has kept of a rank, and nothing else."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _FILE.fullmatch(path.name):
                path.unlink()
        folder.rmdir()
