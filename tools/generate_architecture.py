"""Writes what `docs/architecture.md` shows of rooms and of events.

    python tools/generate_architecture.py docs/architecture.md IMAGE.svg

Replaces the tables between comments of the page, and writes the drawing.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from tests.lint import event_tables, rooms

BEGIN = "<!-- Generated from tests/lint/rooms.py by `make docs`. -->"
BEGIN_EVENTS = "<!-- Generated from keras_ring/keras/lanes by `make docs`. -->"
END = "<!-- The end of what is generated. -->"

# Boxes that are not folders of keras_ring, and what those use that are.
_NATIVE = {"csrc": (), "xla_ops": ("csrc",), "tf_ops": ("xla_ops",)}
_USE_NATIVE = {
    "core": ("csrc",),
    "tensorflow": ("tf_ops",),
    "jax": ("xla_ops",),
}
_HOLD = {
    "csrc": "the runtime, in C++",
    "xla_ops": "calls of XLA's programs, in C++",
    "tf_ops": "TensorFlow ops, in C++",
    "protocol": "what launcher and ranks share",
    "observe": "top, status, timelines, report",
    "core": "a job, with NumPy alone",
    "tensorflow": "collectives of tensors",
    "torch": "PyTorch",
    "jax": "JAX",
    "mxnet": "MXNet",
    "keras": "models, optimizers, data, callbacks",
    "unchanged": "--auto",
    "launch": "starts, watches and ends ranks",
    "launch/cli": "keras-ring run, check, top, …",
    "launch/ray": "actors of Ray",
    "bench": "keras-ring bench",
}
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 214, 48, 22, 34, 12


def table() -> str:
    """Returns the table of the rooms, in Markdown."""
    lines = ["| room | holds | may use |", "|---|---|---|"]
    for room in rooms.ROOMS:
        uses = (
            "the public names" if each == "__init__" else f"`{each}`"
            for each in rooms.direct_uses(room)
        )
        lines.append(f"| `{room.path}` | {room.holds} | {', '.join(uses)} |")
    return "\n".join(lines) + "\n"


def uses_of_boxes() -> dict[str, set[str]]:
    """Returns what each box of the drawing uses."""
    uses: dict[str, set[str]] = {
        **{box: set(used) for box, used in _NATIVE.items()},
        **{room.box: set() for room in rooms.ROOMS if not room.is_face},
    }
    for room in rooms.ROOMS:
        if not room.is_face:
            uses[room.box] |= {
                rooms.BY_PATH[used].box
                for used in _behind_faces(room.uses)
                if rooms.BY_PATH[used].box != room.box
            }
    # The public names stand for all of the package.
    uses["bench"].add("unchanged")
    for box, used in _USE_NATIVE.items():
        uses[box] |= {*used}
    return uses


def _behind_faces(uses: tuple[str, ...]) -> set[str]:
    """Returns the rooms behind the faces among some rooms."""
    found: set[str] = set()
    for path in uses:
        room = rooms.BY_PATH.get(path)
        if room is not None:
            found |= _behind_faces(room.uses) if room.is_face else {path}
    return found


def _reduced(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the arrows that no chain of others replaces."""

    def below(box: str) -> set[str]:
        return uses[box].union(*map(below, uses[box]))

    return {
        box: {
            each
            for each in used
            if not any(each in below(other) for other in used - {each})
        }
        for box, used in uses.items()
    }


def _levels(uses: dict[str, set[str]]) -> list[list[str]]:
    """Returns the boxes of each level, the lowest first."""

    def level(box: str) -> int:
        return 1 + max(map(level, uses[box]), default=-1)

    levels: list[list[str]] = []
    for box in uses:
        while len(levels) <= level(box):
            levels.append([])
        levels[level(box)].append(box)
    return levels


def drawing() -> str:
    """Returns the boxes and the arrows between them, as SVG.

    The boxes of a level are in the order of the middle of what they use, so
    few arrows cross.
    """
    uses = _reduced(uses_of_boxes())
    levels = _levels(uses)
    num_columns = max(map(len, levels))
    width = num_columns * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    height = len(levels) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    places: dict[str, tuple[float, float]] = {}
    for number, boxes in enumerate(levels):
        row = len(boxes) * (_WIDTH + _GAP_X) - _GAP_X

        def middle(box: str) -> float:
            used = [places[each][0] for each in uses[box]]
            return sum(used) / max(len(used), 1)

        for column, box in enumerate(sorted(boxes, key=middle)):
            x = (width - row) / 2 + column * (_WIDTH + _GAP_X)
            y = height - _MARGIN - _HEIGHT - number * (_HEIGHT + _GAP_Y)
            places[box] = (x, y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{height}" font-family="sans-serif" text-anchor="middle">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#546e7a"/></marker></defs>',
    ]
    for box, used in uses.items():
        parts += [_arrow(places[box], places[each]) for each in sorted(used)]
    parts += [_box(box, places[box]) for box in uses]
    return "\n".join([*parts, "</svg>", ""])


def _arrow(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    (x, y), (end_x, end_y) = upper, lower
    half = _WIDTH / 2
    return (
        f'<path d="M{x + half:g} {y + _HEIGHT:g} L{end_x + half:g} '
        f'{end_y:g}" stroke="#546e7a" fill="none" marker-end="url(#head)"/>'
    )


def _box(name: str, place: tuple[float, float]) -> str:
    x, y = place
    fill = "#eceff1" if name in _NATIVE else "#e0f2f1"
    middle = x + _WIDTH / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'rx="5" fill="{fill}" stroke="#546e7a"/>'
        f'<text x="{middle:g}" y="{y + 20:g}" font-size="14" '
        f'font-weight="bold">{escape(name)}</text>'
        f'<text x="{middle:g}" y="{y + 37:g}" font-size="11">'
        f"{escape(_held(name))}</text>"
    )


def _held(name: str) -> str:
    if name not in _HOLD:
        raise SystemExit(
            f"box {name!r} of the drawing needs a line in _HOLD of {__file__}"
        )
    return _HOLD[name]


def page(text: str) -> str:
    """Returns the page with the tables of now.

    Args:
        text: The page as it is.
    """
    for begin, rows in (
        (BEGIN, table()),
        (BEGIN_EVENTS, event_tables.markdown()),
    ):
        pattern = f"{re.escape(begin)}\n.*?{re.escape(END)}"
        new = f"{begin}\n\n{rows}\n{END}"
        text = re.sub(pattern, lambda _, new=new: new, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.write_text(page(where.read_text()))
    Path(sys.argv[2]).write_text(drawing())
