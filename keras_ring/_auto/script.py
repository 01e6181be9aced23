"""Where in the program that was started the caller is."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from keras_ring._auto import trackers

_PACKAGE = Path(__file__).parents[1]
# What a program imports, and is not the program.
_LIBRARIES = tuple(
    {
        sysconfig.get_paths()[name]
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    | {str(_PACKAGE)}
)
# Of which what they do is known here.
_OF_KERAS = ("keras", "tensorflow", "tf_keras", "keras_ring", "absl")
# Modules that a program changes paths by, which call each other.
_OF_PATHS = ("os", "shutil", "pathlib", "posixpath", "contextlib")
# What calls functions of the program to make its data.
_OF_DATA = ("tensorflow.python.ops.script_ops", "tensorflow.python.data.")


def line() -> str:
    """Returns the innermost line of the program, as "train.py:34".

    Empty where none of its code is running.
    """
    for frame in _frames():
        if _is_of_program(frame):
            return _shown(frame)
    return ""


def place() -> str:
    """Returns the innermost line of the program, as " (train.py:34)".

    Empty where none of its code is running.
    """
    found = line()
    return f" ({found})" if found else ""


def line_of_own_call() -> tuple[str, bool]:
    """Returns the line of the program that has called for this by itself.

    Returns:
        The line, empty if Keras, TensorFlow or a tracker is in between; and
        whether it is what `logging` writes.
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
    """Returns the line of the program that changes a path by itself.

    Empty where a library does so: it goes by what it finds, by locks and by
    numbers of its own, so that another rank may not.
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
    """Has the program's own modules have another function of a library.

    For what it has imported by name (`from shutil import rmtree`) before.

    Args:
        before: The function that they may have.
        after: What they are to have.
    """
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path is None or not is_file_of_program(str(path)):
            continue
        names = vars(module)
        for name in [key for key, found in names.items() if found is before]:
            names[name] = after


def is_called_by_program() -> bool:
    """Whether the caller's caller is the program itself."""
    return _is_of_program(sys._getframe(2))


def is_in_data() -> bool:
    """Whether the caller runs to make data, when TensorFlow wants some."""
    return any(
        str(frame.f_globals.get("__name__", "")).startswith(_OF_DATA)
        for frame in _frames()
    )


def _frames() -> Iterator[FrameType]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def is_file_of_program(path: str) -> bool:
    """Whether code of a file is the program's, and no library's."""
    # AutoGraph writes functions of the program anew; who calls them is there.
    generated = "__autograph_generated_file" in path
    return not generated and not path.startswith(("<", *_LIBRARIES))


def _is_of_program(frame: FrameType) -> bool:
    return is_file_of_program(frame.f_code.co_filename)


def _shown(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
