"""The key of a job whose engine does not hand one out."""

import os
import stat
from collections.abc import Mapping

from keras_ring import errors
from keras_ring.protocol import contract


def given(environment: Mapping[str, str]) -> str:
    """Returns the key that the user has set, directly or in a file, or `""`.

    Raises:
        StartError: If others can read the file, or it cannot be read.
    """
    key = environment.get(contract.JOB_KEY, "")
    path = environment.get(contract.JOB_KEY_FILE, "")
    if key or not path:
        return key
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(1024).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.StartError(
            f"{contract.JOB_KEY_FILE} is {path!r}, which cannot be read: "
            f"{error}"
        ) from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise errors.StartError(
            f"{contract.JOB_KEY_FILE} is {path!r}, which others can read or "
            f"write (mode {stat.S_IMODE(mode):o}); chmod 600 {path}"
        )
    return key
