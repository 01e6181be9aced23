"""What is said of what is done in a program's place: once, by rank 0."""

from __future__ import annotations

import sys

from keras_ring._runtime import topology

_said: set[str] = set()


def say(text: str, rank: int = 0, place: str = "") -> None:
    """Prints a line, if it was not printed before.

    On the standard error, as the standard output is the program's.

    Args:
        text: String, the line.
        rank: Integer, who prints it. Defaults to `0`.
        place: String, what in the text says where in the program it is. The
            same line for another place is not printed again. Defaults to
            nothing.
    """
    known = text.replace(place, "", 1)
    if known in _said:
        return
    _said.add(known)
    if topology.rank() == rank:
        print(f"keras_ring: {text}", file=sys.stderr, flush=True)


def count(number: int, what: str) -> str:
    """Returns "1 batch", "2 batches", "60,000 samples"."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{'' if number == 1 else plural}"
