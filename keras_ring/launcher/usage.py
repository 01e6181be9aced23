"""What the launcher itself says, and the error for bad input."""

import sys


class UsageError(ValueError):
    """Bad input; its text is one line for the user."""


def say(line: str) -> None:
    """Prints a line of the launcher's own, to standard error."""
    try:
        print(f"keras-ring: {line}", file=sys.stderr, flush=True)
    except OSError:
        # Nobody reads; the exit code still tells.
        return
