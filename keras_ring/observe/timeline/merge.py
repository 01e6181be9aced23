"""Merges the parts of a timeline into one file, and reads both forms."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import IO, cast

from keras_ring.observe.timeline import perfetto, trace_events
from keras_ring.observe.timeline.model import Timeline, TimelineError
from keras_ring.observe.timeline.parts import read_parts
from keras_ring.protocol.timeline_parts import parts_directory

_JSON = ".json"
_GZIP = ".gz"
_GZIP_MAGIC = b"\x1f\x8b"
# Level 9 takes five times as long for files a tenth smaller.
_LEVEL = 6


def merge(path: Path, command: str = "") -> Timeline:
    """Merges the parts of a timeline into one file, and removes the parts.

    Args:
        path: The file: `.json` or `.json.gz` for the Trace Event Format,
            anything else for a trace of Perfetto. The parts are in a directory
            beside it.
        command: Command line of the job, to be noted in the file.

    Returns:
        The timeline that was written.

    Raises:
        TimelineError: If there is nothing to merge.
        OSError: If the file cannot be written. The parts are still there.
    """
    parts = parts_directory(path)
    timeline = read_parts(parts)
    if command:
        first, *others = timeline.ranks
        first = dataclasses.replace(first, command=command)
        timeline = dataclasses.replace(timeline, ranks=(first, *others))
    write(timeline, path)
    shutil.rmtree(parts, ignore_errors=True)
    return timeline


def write(timeline: Timeline, path: Path) -> None:
    """Writes a timeline to a file that is complete or not there.

    Args:
        timeline: The timeline to write.
        path: Path of the file, whose extension selects the format; see
            `merge`.
    """
    descriptor, name = tempfile.mkstemp(
        prefix=f".{path.name}.", dir=path.parent
    )
    try:
        with open(descriptor, "wb") as file:
            _write(timeline, file, path.name)
            # Usual permissions: the file of mkstemp is private.
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The mask cannot be read without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write(timeline: Timeline, file: IO[bytes], name: str) -> None:
    if name.endswith(_GZIP):
        # No time and no name, so that equal timelines make equal files.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            plain = name.removesuffix(_GZIP)
            _write(timeline, cast(IO[bytes], packed), plain)
    elif name.endswith(_JSON):
        text = io.TextIOWrapper(file, "utf-8")
        trace_events.write(timeline, text)
        # The caller closes the file.
        text.detach()
    else:
        perfetto.write(timeline, file)


def read(path: Path) -> Timeline:
    """Reads a timeline.

    Args:
        path: A file that `merge` has written, or a directory of parts.

    Raises:
        TimelineError: If the path holds no timeline.
    """
    if path.is_dir():
        return read_parts(path)
    try:
        return _read_file(path)
    except FileNotFoundError:
        raise TimelineError(f"{path}: there is no such file") from None
    except OSError as error:
        raise TimelineError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error, TimelineError) as error:
        raise TimelineError(f"{path}: {error}") from None
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise TimelineError(
            f"{path}: not a timeline of keras_ring ({error!r})"
        ) from None


def _read_file(path: Path) -> Timeline:
    with open(path, "rb") as plain:
        packed = plain.read(2) == _GZIP_MAGIC
    opened = gzip.open(path, "rb") if packed else open(path, "rb")
    with cast(IO[bytes], opened) as file:
        start = file.read(1)
        file.seek(0)
        # A Perfetto trace begins with the field of a packet.
        if start in (b"{", b"["):
            with io.TextIOWrapper(file, "utf-8") as text:
                return trace_events.read(text)
        return perfetto.read(file)
