"""A verb of the `keras-ring` command."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from keras_ring.launch.usage import UsageError, say

_USAGE_ERROR = 2


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the `keras-ring` command, with its arguments and action.

    Args:
        name: String, the word after `keras-ring`.
        help: String, a line for the list of all verbs.
        add_arguments: Function that adds the arguments of the verb to a parser.
        run: Function that runs the verb and returns the exit code. May raise
            `UsageError`.
        usage: String, the usage line. Defaults to one made of the arguments.
        description: String, a longer text for the help of this verb. Defaults
            to none.
        example: String, a command to try, for the help of this verb. Defaults
            to none.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    usage: str | None = None
    description: str | None = None
    example: str | None = None


def refused(error: UsageError) -> int:
    """Prints what is wrong with a command, and returns the exit code."""
    say(str(error), level="error")
    return _USAGE_ERROR
