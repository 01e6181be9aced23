"""Messages for the user: log lines, and lines that one rank prints once.

Log lines go through `absl` if it is installed.
"""

from __future__ import annotations

import functools
import logging
import sys

from keras_ring.core import topology


def log(level: int, text: str) -> None:
    """Logs a line.

    Args:
        level: Integer, a level of `logging`.
        text: String, the line.
    """
    try:
        from absl import logging as absl_logging
        from absl.logging import converter
    except ModuleNotFoundError:
        logging.getLogger("keras_ring").log(level, text)
        return
    absl_logging.log(converter.standard_to_absl(level), "keras_ring: %s", text)


def warn(text: str) -> None:
    """Logs a warning."""
    log(logging.WARNING, text)


@functools.cache
def warn_once(text: str) -> None:
    """Logs a warning once for each text."""
    warn(text)


_said: set[str] = set()


def say(text: str, rank: int = 0, location: str = "") -> None:
    """Prints a line on standard error, if it was not printed before.

    Standard output is left to the program. All ranks of the job must be equal
    in what they ask to be printed, as only one of them prints it.

    Args:
        text: String, the line.
        rank: Integer, the rank that prints it. Defaults to `0`.
        location: String, the part of the text that names the line of the
            program. The same text for another line is not printed again.
            Defaults to an empty string.
    """
    known = text.replace(location, "", 1)
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
