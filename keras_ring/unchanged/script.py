"""The line of the program that the caller runs in."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from keras_ring.unchanged import trackers

# The module whose functions call those that are changed.
_WRAPPING = "keras_ring.keras.lanes.wrapping"
_PACKAGE = Path(__file__).parents[1]
# Directories of code that a program imports and that is not the program's.
_LIBRARIES = tuple(
    {
        sysconfig.get_paths()[name]
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    | {str(_PACKAGE)}
)
# Packages whose writes are handled elsewhere.
_OF_KERAS = ("keras", "tensorflow", "tf_keras", "keras_ring", "absl")
# Modules through which a program changes paths, and which call each other.
_OF_PATHS = ("os", "shutil", "pathlib", "posixpath", "contextlib")
# Modules that call functions of the program to make its data.
_OF_DATA = ("tensorflow.python.ops.script_ops", "tensorflow.python.data.")


def line() -> str:
    """Returns the innermost line of the program, such as "train.py:34".

    The string is empty if no code of the program is running.
    """
    for frame in _frames():
        if _is_of_program(frame):
            return _shown(frame)
    return ""


def location() -> str:
    """Returns the innermost line of the program, such as " (train.py:34)".

    The string is empty if no code of the program is running.
    """
    found = line()
    return f" ({found})" if found else ""


def line_of_own_call() -> tuple[str, bool]:
    """Returns the line of the program that causes the present call itself.

    Returns:
        A tuple: the line, which is empty if Keras, TensorFlow or a tracker is
        in between, and a boolean, whether `logging` is in between.
    """
    is_log = False
    for frame in _frames():
        if _is_of_program(frame):
            return _shown(frame), is_log
        module = str(frame.f_globals.get("__name__", ""))
        inner = module.startswith(f"{__package__}.")
        top = module.split(".")[0]
        if (top in _OF_KERAS and not inner) or top in trackers.MODULES:
            break
        is_log = is_log or top == "logging"
    return "", is_log


def line_of_direct_call() -> str:
    """Returns the line of the program that changes a path itself.

    The string is empty if a library does so. A library may depend on files
    that it finds, on locks and on numbers of its own, so that other ranks need
    not make the same call.
    """
    for frame in _frames():
        if _is_of_program(frame):
            return _shown(frame)
        module = str(frame.f_globals.get("__name__", ""))
        is_ours = module.startswith(f"{__package__}.")
        if not is_ours and module.split(".")[0] not in _OF_PATHS:
            break
    return ""


def rebind(before: Any, after: Any) -> None:
    """Replaces a function of a library in the program's own modules.

    They may have imported it by name (`from shutil import rmtree`) before.

    Args:
        before: The function that they may have imported.
        after: The function that replaces it.
    """
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path is None or not is_file_of_program(str(path)):
            continue
        names = vars(module)
        for name in [key for key, found in names.items() if found is before]:
            names[name] = after


def is_called_by_program() -> bool:
    """Returns whether the caller's caller is the program itself."""
    frames = _frames()
    next(frames)
    return _is_of_program(next(frames))


def is_in_data() -> bool:
    """Returns whether TensorFlow has called the caller to make data."""
    return any(
        str(frame.f_globals.get("__name__", "")).startswith(_OF_DATA)
        for frame in _frames()
    )


def _frames() -> Iterator[FrameType]:
    """Yields the frames of the stack, from that of the caller's caller on.

    Those that only call the wrappers of a function are left out.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") != _WRAPPING:
            yield frame
        frame = frame.f_back


def is_file_of_program(path: str) -> bool:
    """Returns whether a file is of the program and not of a library.

    Args:
        path: String, the path of a source file.
    """
    # AutoGraph generates copies of functions of the program, which are skipped:
    # their callers are further out in the stack.
    generated = "__autograph_generated_file" in path
    return not generated and not path.startswith(("<", *_LIBRARIES))


def _is_of_program(frame: FrameType) -> bool:
    return is_file_of_program(frame.f_code.co_filename)


def _shown(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
