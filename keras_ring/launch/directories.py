"""Directories that a launcher needs, and that may not exist."""

import os
import tempfile
from pathlib import Path

from keras_ring.launch.usage import UsageError


def temporary_directory() -> Path:
    """Returns the directory of temporary files.

    Raises:
        UsageError: If there is no such directory, as in a container whose file
            system is read-only.
    """
    try:
        return absolute(tempfile.gettempdir())
    except FileNotFoundError:
        raise UsageError(
            "there is no directory for temporary files: set TMPDIR to one that"
            " this process can write to"
        ) from None


def working_directory() -> str:
    """Returns the working directory.

    Raises:
        UsageError: If it does not exist any more.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "the working directory is gone: change to one that is there"
        ) from None


def absolute(path: str | os.PathLike[str]) -> Path:
    """Returns an absolute path, which is valid for other processes as well.

    Raises:
        UsageError: If the path is relative and the working directory does not
            exist any more.
    """
    if os.path.isabs(path):
        return Path(os.path.normpath(path))
    return Path(os.path.normpath(os.path.join(working_directory(), path)))
