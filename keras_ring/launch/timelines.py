"""Collects the timelines of ranks, and merges them into one file.

Each rank writes on its host. The launcher writes a mark into the folder of
these files. Agents that find the mark share the launcher's file system; all
others send the files of their ranks. Whether the job succeeds or fails, a file
is made of the parts that have arrived.
"""

import contextlib
import importlib
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from keras_ring.launch.lost_files import LostFiles
from keras_ring.launch.usage import say
from keras_ring.protocol.timeline_parts import parts_directory

_MARK = "launcher"
_PART = re.compile(r"rank\.([0-9]+)\.(jsonl|spans)")
_PIECE = 1 << 20


class Parts:
    """The folder in which the parts of a timeline are collected.

    Args:
        path: Path of the file that will be made of them.
    """

    def __init__(self, path: Path) -> None:
        self._directory = parts_directory(path)
        self.token = secrets.token_hex(8)
        """The mark that agents find if they share the file system."""
        self._lost = LostFiles()
        # Names of files that have lost a piece.
        self._cut: set[str] = set()
        _clear(self._directory)
        self._directory.mkdir(exist_ok=True)
        (self._directory / _MARK).write_text(self.token)

    @property
    def empty(self) -> bool:
        """Returns whether no rank has left a part."""
        names = (path.name for path in _listed(self._directory))
        return not any(map(_PART.fullmatch, names))

    def remove(self) -> None:
        """Removes the folder with all parts."""
        remove(self._directory)

    def add(self, name: str, piece: bytes) -> None:
        """Appends the next piece of a file of another host."""
        if not _PART.fullmatch(name) or name in self._cut:
            return
        path = self._directory / name
        try:
            with open(path, "ab") as file:
                file.write(piece)
        except OSError as error:
            # Pieces after a gap could not be read.
            self._cut.add(name)
            self._lost.note(path, error)

    def close(self) -> None:
        """Reports lost files. Call it after all pieces have arrived."""
        self._lost.tell_others()


def _clear(directory: Path) -> None:
    """Removes the parts of an earlier job, which may have had more ranks."""
    for path in _listed(directory):
        if _PART.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def recorded(path: Path | None) -> Iterator[Parts | None]:
    """Makes a file of the timelines that ranks record inside of the block.

    Args:
        path: Path of the file. `None` if no timeline is recorded.

    Yields:
        The `Parts`, or `None` if no timeline can be recorded.
    """
    if path is None:
        yield None
        return
    try:
        parts = Parts(path)
    except OSError as error:
        LostFiles().note(parts_directory(path), error)
        yield None
        return
    try:
        yield parts
    except BaseException:
        # The error of a job that did not start is raised without a message
        # about its timeline.
        if parts.empty:
            parts.remove()
        else:
            _merge(path)
        raise
    parts.close()
    if parts.empty:
        parts.remove()
        say("there is no timeline: no rank has recorded one")
    else:
        _merge(path)


def _merge(path: Path) -> None:
    # Imported here, because the launcher itself needs no NumPy.
    merging = importlib.import_module("keras_ring.observe.timeline.merge")
    try:
        timeline = merging.merge(path, _command(sys.argv))
    except (OSError, ValueError) as error:
        say(f"no timeline could be made of {parts_directory(path)}: {error}")
        return
    missing = len(timeline.missing)
    without = f", without {missing} of the ranks" * bool(missing)
    where = "https://ui.perfetto.dev"
    if path.name.endswith((".json", ".json.gz")):
        where += " or chrome://tracing"
    say(f"timeline in {path}{without}; open it with {where}")


def _command(words: Sequence[str]) -> str:
    """Returns the command that started this job, as for a shell.

    Values of variables are left out, because they may be secret.
    """
    program = Path(words[0])
    # `python -m keras_ring`, or a program that calls `kr.run`.
    own = program.name == "keras-ring" or program.parent.name == "keras_ring"
    shown = ["keras-ring"] if own else ["python", words[0]]
    before = ""
    for word in words[1:]:
        if before == "--env":
            word = word.partition("=")[0] + "=..."
        elif word.startswith("--env="):
            word = "=".join(word.split("=")[:2]) + "=..."
        shown.append(word)
        before = word
    return shlex.join(shown)


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def unseen(path: str | None, token: str | None) -> Path | None:
    """Returns the folder of this host's parts, if they have to be sent.

    Args:
        path: String, the file that the launcher makes, or `None`.
        token: String, the mark that the launcher has written beside the parts,
            or `None`.

    Returns:
        Path of the folder. `None` if there is no timeline, or the launcher sees
        the folder itself.
    """
    if not path or token is None:
        return None
    directory = parts_directory(Path(path))
    with contextlib.suppress(OSError):
        if (directory / _MARK).read_text() == token:
            return None
    _clear(directory)
    return directory


def pieces(
    directory: Path | None, ranks: Collection[int]
) -> Iterator[tuple[str, bytes]]:
    """Yields the names of these ranks' parts with pieces of their contents."""
    for path in [] if directory is None else sorted(_listed(directory)):
        match = _PART.fullmatch(path.name)
        if match is None or int(match[1]) not in ranks:
            continue
        with contextlib.suppress(OSError), open(path, "rb") as file:
            while piece := file.read(_PIECE):
                yield path.name, piece


def remove(directory: Path) -> None:
    """Removes parts that were sent."""
    shutil.rmtree(directory, ignore_errors=True)
