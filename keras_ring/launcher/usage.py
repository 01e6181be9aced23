"""What the launcher itself says, and the error for bad input."""

import contextlib
import sys
from collections.abc import Iterator

from keras_ring._launch_protocol.log_source import LogSource

_LOGGER = "keras_ring.launcher"
# Who says it, where lines are objects of JSON.
_source: LogSource | None = None


class UsageError(ValueError):
    """Bad input; its text is one line for the user."""


@contextlib.contextmanager
def speaking_as(source: LogSource | None) -> Iterator[None]:
    """Has what is said in the block be objects of JSON.

    Args:
        source: Who says it; None for text.
    """
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


def say(text: str, *, level: str = "info", **more: object) -> None:
    """Prints what the launcher itself has to say, to standard error.

    Args:
        text: One line, or several.
        level: How severe it is. Text shows it of an error.
        more: Further keys, where it is an object of JSON.
    """
    if _source is not None:
        lines = [_source.line(text, level=level, logger=_LOGGER, more=more)]
    else:
        shown = f"error: {text}" if level == "error" else text
        lines = [f"keras-ring: {line}" for line in shown.split("\n")]
    try:
        print("\n".join(lines), file=sys.stderr, flush=True)
    except OSError:
        # Nobody reads; the exit code still tells.
        return
