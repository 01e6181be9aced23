"""Starts `--auto` in one program of a rank, once.

Both `hook/sitecustomize.py` and `keras_ring.auto` call it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from keras_ring import errors
from keras_ring.protocol import contract

_PATH = "PYTHONPATH"
HOOK = os.path.abspath(Path(__file__).with_name("hook"))

_lock = threading.Lock()
_begun = False


def start() -> None:
    """Makes this program train on all ranks, unless an ancestor does.

    Programs that this program starts, for example workers that load data, do
    not find the variables of `--auto` and run as usual. Calling this again, or
    with `KERAS_RING_AUTO=0`, does nothing.

    Raises:
        AutoError: If a setting is for another framework than that of Keras.
        ConfigurationError: If another program of this rank has called this
            before and has not started this one.
    """
    global _begun
    with _lock:
        if _begun or os.environ.get(contract.AUTO) == "0":
            return
        _begun = True
    try:
        if _is_worker() or not _claim():
            return
        from keras_ring.unchanged.activation import activate

        activate()
    finally:
        _forget()


def _forget() -> None:
    """Removes the environment variables that start `--auto` in children."""
    os.environ.pop(contract.AUTO, None)
    words = os.environ.get(_PATH, "").split(os.pathsep)
    if HOOK not in words:
        return
    words.remove(HOOK)
    if words:
        os.environ[_PATH] = os.pathsep.join(words)
    else:
        del os.environ[_PATH]


def _is_worker() -> bool:
    """Returns whether `multiprocessing` has started this process.

    Such a child process runs the first lines of the program once more.
    """
    main = sys.modules["__main__"]
    if sys.modules.get("__mp_main__", main) is not main:
        # The child is running these lines now.
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _claim() -> bool:
    """Makes this process the one of its rank that trains.

    Returns:
        Boolean, whether it is. It is not if it was started by the process that
        trains.

    Raises:
        ConfigurationError: If another process of the rank trains, which has
            not started this one.
    """
    name = os.environ.get(contract.ERROR_FILE)
    if not name:
        return True
    path = Path(name + ".auto")
    try:
        with path.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        owner = int(path.read_text() or "0")
    except OSError:
        # The directory is gone or full, and a second program is rare.
        return True
    else:
        return True
    if owner == os.getpid():
        return True
    if owner in _ancestors():
        return False
    raise errors.ConfigurationError(
        f"Two programs of this rank import Keras or TensorFlow, one of them "
        f"(process {owner}) before this one (process {os.getpid()}), and "
        "--auto trains one program per job. Start a job for each."
    )


def _ancestors() -> set[int]:
    """Returns the process ids of the parent, its parent, and so on."""
    found: set[int] = set()
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            text = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            break
        # The name, in parentheses, may itself hold spaces and parentheses.
        pid = int(text[text.rindex(b")") + 1 :].split()[1])
    return found
