"""A verb of the `keras-ring` command."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from keras_ring.launcher.usage import UsageError, say

_USAGE_ERROR = 2


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What follows `keras-ring` on a command line, and what it does.

    Args:
        name: The word.
        help: A line for the list of all verbs.
        add_arguments: Adds what may follow it to a parser.
        run: Does it; returns the exit code. May raise `UsageError`.
        usage: How it is called. Defaults to what its arguments say.
        description: More than `help` for who asks for this verb alone.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    usage: str | None = None
    description: str | None = None


def refused(error: UsageError) -> int:
    """Says what is wrong with a command; returns the exit code."""
    say(str(error), level="error")
    return _USAGE_ERROR
