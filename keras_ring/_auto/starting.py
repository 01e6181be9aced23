"""Has one program of a rank train with the other ranks, once.

Both `hook/sitecustomize.py` and `keras_ring.auto` come here.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from keras_ring import errors
from keras_ring._launch_protocol import contract

_PATH = "PYTHONPATH"
HOOK = os.path.abspath(Path(__file__).with_name("hook"))

_lock = threading.Lock()
_begun = False


def start() -> None:
    """Has this program train on all ranks, unless another one of the rank does.

    What this program starts itself, workers that load data for example, are
    plain programs: they find none of the variables of `--auto`. Calling it
    again changes nothing, nor does `KERAS_RING_AUTO=0`.

    Raises:
        ConfigurationError: If another program of this rank has trained before.
    """
    global _begun
    with _lock:
        if _begun or os.environ.get(contract.AUTO) == "0":
            return
        _begun = True
    try:
        if _is_worker() or not _claim():
            return
        from keras_ring._auto.activation import activate

        activate()
    finally:
        _forget()


def _forget() -> None:
    """Takes out of the environment what would start `--auto` in children."""
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
    """Whether `multiprocessing` has started this process.

    Its children run the first lines of the program once more.
    """
    main = sys.modules["__main__"]
    if sys.modules.get("__mp_main__", main) is not main:
        # It is just running them.
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _claim() -> bool:
    """Makes this process the one of its rank that trains.

    Returns:
        Whether it is. Not if it was started by the one that is.
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
        # Its directory is gone, or full: what it guards against is rare.
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
    """Returns the ids of the processes that have led to this one."""
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
