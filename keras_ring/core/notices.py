"""Log messages for the user, through `absl` if it is installed."""

from __future__ import annotations

import functools
import logging


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
