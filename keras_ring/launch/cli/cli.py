"""The `keras-ring` command and its verbs, each of which has a module."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from keras_ring._version import __version__
from keras_ring.launch.cli.bench import BENCH
from keras_ring.launch.cli.check import CHECK
from keras_ring.launch.cli.diagnosis import DOCTOR
from keras_ring.launch.cli.report import REPORT
from keras_ring.launch.cli.run import RUN
from keras_ring.launch.cli.template import TEMPLATE
from keras_ring.launch.cli.top import STATUS, TOP
from keras_ring.launch.cli.verb import refused
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import standard_streams

_VERBS = (RUN, CHECK, DOCTOR, TOP, STATUS, BENCH, REPORT, TEMPLATE)


class _Parser(argparse.ArgumentParser):
    """A parser that raises on bad usage, so that `main` prints one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> _Parser:
    parser = _Parser(
        prog="keras-ring",
        description="Distributed training for Keras and TensorFlow.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"keras-ring {__version__}",
    )
    commands = parser.add_subparsers(
        dest="command_name", metavar="COMMAND", required=True
    )
    for verb in _VERBS:
        words = commands.add_parser(
            verb.name,
            help=verb.help,
            usage=verb.usage,
            description=verb.description,
            allow_abbrev=False,
        )
        verb.add_arguments(words)
        words.set_defaults(verb=verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the `keras-ring` command.

    Args:
        argv: Sequence of strings, the arguments after the program's name.
            Defaults to those of this process.

    Returns:
        The exit code: 0 for success, 2 for bad input, 1 for a benchmark with
        a wrong result, else that of the first failing rank.
    """
    standard_streams.fill_closed()
    try:
        arguments = _parser().parse_args(argv)
        return int(arguments.verb.run(arguments))
    except UsageError as error:
        return refused(error)
