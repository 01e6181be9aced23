"""Where in the program that was started the caller is."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

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


def line() -> str:
    """Returns the innermost line of the program, as "train.py:34".

    Empty where none of its code is running.
    """
    for frame in _frames():
        if _is_of_program(frame):
            return _shown(frame)
    return ""


def line_of_own_call() -> tuple[str, bool]:
    """Returns the line of the program that has called for this by itself.

    Returns:
        The line, empty if Keras or TensorFlow is in between; and whether it
        is what `logging` writes.
    """
    is_log = False
    for frame in _frames():
        if _is_of_program(frame):
            return _shown(frame), is_log
        module = str(frame.f_globals.get("__name__", ""))
        inner = module.startswith(f"{__package__}.")
        top = module.split(".")[0]
        if top in _OF_KERAS and not inner:
            break
        is_log = is_log or top == "logging"
    return "", is_log


def _frames() -> Iterator[FrameType]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _is_of_program(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    # AutoGraph writes functions of the program anew; who calls them is there.
    generated = "__autograph_generated_file" in name
    return not generated and not name.startswith(("<", *_LIBRARIES))


def _shown(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
