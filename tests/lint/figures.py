"""The structure of `keras_ring` in numbers.

    python -m tests.lint.figures [DIRECTORY]

DIRECTORY is a checkout; without it, this one. Rooms and floors are those of
`rooms`, everything else is counted in the files.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from tests.lint import floors, rooms

_ROOT = Path(__file__).resolve().parents[2]
_BEGINNINGS = ("What", "Of", "Whether", "Has", "Who", "Those")
# A change of Keras that is no subscription to an event.
_CHANGES = re.compile(
    r"\b(patch_once|hook_\w+|replaced|wrapping\.wrap)\("
    r"|import (wrap|wrapping)\b"
    r"|\b(set|del)attr\(\s*keras\b"
    r"|^\s*keras\.[\w.]+ = ",
    re.MULTILINE,
)
# It refuses a Keras that computes with another backend, for which there is no
# lane.
_WITHOUT_LANE = "keras/startup/install.py"
_TENSORFLOW = re.compile(r"^\s*(import|from) tensorflow\b", re.MULTILINE)
_CONTEXT = re.compile(r"\bContextVar\(")


def figures(package: Path) -> dict[str, int]:
    """Returns the numbers of a package, by what they count."""
    texts = {
        path.relative_to(package).as_posix(): path.read_text()
        for path in sorted(package.rglob("*.py"))
    }
    arrows = {
        (floors.room_of(path), floors.room_of(module))
        for path, text in texts.items()
        for module in floors.imported_modules(text)
        if module.startswith("keras_ring.")
    }
    folders = {room.folder for room in rooms.ROOMS}
    of_folders = {
        (upper.partition("/")[0], lower.partition("/")[0])
        for upper, lower in arrows
    }
    of_folders = {
        (upper, lower)
        for upper, lower in of_folders
        if upper != lower and upper in folders and lower in folders
    }
    known = [room.path for room in rooms.ROOMS if not room.is_face]
    arrows = {
        (upper, lower)
        for upper, lower in arrows
        if upper != lower and upper in known and lower in known
    }
    words = [word for text in texts.values() for word in _first_words(text)]
    return {
        "folders and modules at the top": len(folders),
        "arrows between these": len(of_folders),
        "rooms": len(known),
        "floors": max(_floor_of(room) for room in known),
        "arrows between rooms": len(arrows),
        "late imports": len(floors.LATE),
        "files that import TensorFlow outside of tensorflow/": sum(
            bool(_TENSORFLOW.search(text))
            for path, text in texts.items()
            if not path.startswith(("tensorflow/", "_ops/"))
        ),
        "files that change Keras outside of keras/lanes": sum(
            changes_keras(text)
            for path, text in texts.items()
            if not path.startswith(("keras/lanes/", "_keras/"))
            and path != _WITHOUT_LANE
        ),
        "context variables": sum(
            len(_CONTEXT.findall(text)) for text in texts.values()
        ),
        f"docstrings that begin with {', '.join(_BEGINNINGS)}": sum(
            word in _BEGINNINGS for word in words
        ),
        "files": len(texts),
        "lines": sum(text.count("\n") for text in texts.values()),
    }


def changes_keras(text: str) -> bool:
    """Returns whether a file changes Keras without subscribing to an event."""
    return bool(_CHANGES.search(text))


def _floor_of(path: str) -> int:
    """Returns the number of the floor of a room; the lowest is 1."""
    uses = [used for used in rooms.BY_PATH[path].uses if used in rooms.BY_PATH]
    return 1 + max(map(_floor_of, uses), default=0)


def _first_words(text: str) -> list[str]:
    """Returns the first words of the docstrings of a file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = (
        ast.get_docstring(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, kinds)
    )
    return [each.split()[0].rstrip(",.:;") for each in docstrings if each]


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT
    for what, number in figures(root / "keras_ring").items():
        print(f"{number:6,}  {what}")
