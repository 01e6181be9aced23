"""Notices about what `--auto` does, which one rank prints once."""

from __future__ import annotations

import sys

from keras_ring.core import topology

_said: set[str] = set()


def say(text: str, rank: int = 0, place: str = "") -> None:
    """Prints a line on standard error, if it was not printed before.

    Standard output is left to the program.

    Args:
        text: String, the line.
        rank: Integer, the rank that prints it. Defaults to `0`.
        place: String, the part of the text that names the line of the program.
            The same text for another line is not printed again. Defaults to
            an empty string.
    """
    known = text.replace(place, "", 1)
    if known in _said:
        return
    _said.add(known)
    if topology.rank() == rank:
        print(f"keras_ring: {text}", file=sys.stderr, flush=True)


def count(number: int, what: str) -> str:
    """Returns a number with its unit, such as "2 batches".

    Args:
        number: Integer.
        what: String, the singular of the unit, such as "batch".
    """
    plural = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{'' if number == 1 else plural}"
