"""The directory of the status pages, and checks of its permissions.

The directory is in `/tmp`, where any user could have made one of this name. It
is used only if it belongs to this user and no other user can write to it.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from keras_ring.errors import ConfigurationError

VARIABLE = "KERAS_RING_STATUS_DIR"
# Value of the variable that switches status pages off.
OFF = "off"
_JOB = re.compile(r"[0-9a-f]{12}|pid-[0-9]+")


def status_directory(environment: Mapping[str, str]) -> Path | None:
    """Returns the directory of this user's status pages, or `None` if off.

    Args:
        environment: Environment of a rank or of the observing process.
    """
    text = environment.get(VARIABLE, "")
    if text == OFF:
        return None
    return Path(text or f"/tmp/keras-ring-status-{os.geteuid()}")


def is_job_id(text: str) -> bool:
    """Returns whether a text is a valid name of a job."""
    return _JOB.fullmatch(text) is not None


def is_private(directory: Path) -> bool:
    """Returns whether a directory exists and only this user can use it.

    Raises:
        ConfigurationError: If it exists, but others can use it.
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
    """Makes a directory that only this user can use, unless it exists.

    Raises:
        ConfigurationError: If it exists, but others can use it.
        OSError: If it cannot be made.
    """
    directory.mkdir(mode=0o700, parents=False, exist_ok=True)
    is_private(directory)
