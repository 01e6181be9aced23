"""Messages of the launcher itself, and the error for bad input."""

import contextlib
import sys
from collections.abc import Iterator

from keras_ring.protocol.log_source import LogSource

_LOGGER = "keras_ring.launch"
# The source of messages, if lines are JSON objects.
_source: LogSource | None = None


class UsageError(ValueError):
    """Raised for bad input, with a text of one line for the user."""


@contextlib.contextmanager
def speaking_as(source: LogSource | None) -> Iterator[None]:
    """Prints messages in the block as JSON objects.

    Args:
        source: `LogSource` of the messages. `None` for text.
    """
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


def say(text: str, *, level: str = "info", **more: object) -> None:
    """Prints a message of the launcher to standard error.

    Args:
        text: String, one line or several.
        level: String, the severity. In text format, it is shown for an error
            only.
        more: Further fields, if lines are JSON objects.
    """
    if _source is not None:
        lines = [_source.line(text, level=level, logger=_LOGGER, more=more)]
    else:
        shown = f"error: {text}" if level == "error" else text
        lines = [f"keras-ring: {line}" for line in shown.split("\n")]
    try:
        print("\n".join(lines), file=sys.stderr, flush=True)
    except OSError:
        # Nobody reads standard error; the exit code still reports a failure.
        return
