"""Directories that a launcher needs, and that may not be there."""

import os
import tempfile
from pathlib import Path

from keras_ring.launcher.usage import UsageError


def temporary_directory() -> Path:
    """Returns where temporary files go.

    Raises:
        UsageError: If there is no such place, as in a container whose file
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
        UsageError: If it is gone.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "the working directory is gone: change to one that is there"
        ) from None


def absolute(path: str | os.PathLike[str]) -> Path:
    """Returns a path from the root, which others understand as well.

    Raises:
        UsageError: If it begins in a working directory that is gone.
    """
    if os.path.isabs(path):
        return Path(os.path.normpath(path))
    return Path(os.path.normpath(os.path.join(working_directory(), path)))
