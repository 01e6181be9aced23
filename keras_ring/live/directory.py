"""Where ranks keep their status pages, and whether these can be trusted.

The directory is in `/tmp`, where any user could have prepared one: nothing in
it counts unless it belongs to this user and nobody else can write there.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from keras_ring.errors import ConfigurationError

VARIABLE = "KERAS_RING_STATUS_DIR"
# Its value for no pages.
OFF = "off"
_JOB = re.compile(r"[0-9a-f]{12}|pid-[0-9]+")


def status_directory(environment: Mapping[str, str]) -> Path | None:
    """Returns where the jobs of this user have their pages; None if nowhere.

    Args:
        environment: That of the ranks, or of whoever looks.
    """
    text = environment.get(VARIABLE, "")
    if text == OFF:
        return None
    return Path(text or f"/tmp/keras-ring-status-{os.geteuid()}")


def is_job_id(text: str) -> bool:
    """Returns whether a job could have this name."""
    return _JOB.fullmatch(text) is not None


def is_private(directory: Path) -> bool:
    """Returns whether a directory is there and this user's alone.

    Raises:
        ConfigurationError: If it is there, but not this user's alone.
    """
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigurationError(f"{directory}: {error.strerror}") from error
    wrong = ""
    if not stat.S_ISDIR(found.st_mode):
        wrong = "it is no directory"
    elif found.st_uid != os.geteuid():
        wrong = f"it belongs to user {found.st_uid}"
    elif found.st_mode & 0o077:
        wrong = f"others have access to it (mode {found.st_mode & 0o777:o})"
    if wrong:
        raise ConfigurationError(
            f"the status pages in {directory} cannot be trusted: {wrong};"
            f" expected a directory of user {os.geteuid()} with mode 700."
            f" Remove it, or name another one by {VARIABLE}"
        )
    return True


def make_private(directory: Path) -> None:
    """Makes a directory that only this user can use, unless it is there.

    Raises:
        ConfigurationError: If it is there, but not this user's alone.
        OSError: If it cannot be made.
    """
    directory.mkdir(mode=0o700, parents=False, exist_ok=True)
    is_private(directory)
