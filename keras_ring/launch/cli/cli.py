"""The `keras-ring` command and its verbs, each of which has a module."""

from collections.abc import Sequence

from keras_ring._version import __version__
from keras_ring.launch.cli.bench import BENCH
from keras_ring.launch.cli.check import CHECK
from keras_ring.launch.cli.diagnosis import DOCTOR
from keras_ring.launch.cli.parser import Parser
from keras_ring.launch.cli.report import REPORT
from keras_ring.launch.cli.run import RUN
from keras_ring.launch.cli.template import TEMPLATE
from keras_ring.launch.cli.top import STATUS, TOP
from keras_ring.launch.cli.verb import refused
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import standard_streams

_VERBS = (RUN, CHECK, DOCTOR, TOP, STATUS, BENCH, REPORT, TEMPLATE)


def parser() -> Parser:
    """Returns the parser of the command line."""
    found = Parser(
        prog="keras-ring",
        description="Trains a Keras, TensorFlow, PyTorch, JAX or MXNet program "
        "on many processes.",
        epilog="For example: keras-ring run --auto -np 4 -- python train.py",
    )
    found.add_argument(
        "--version",
        action="version",
        version=f"keras-ring {__version__}",
    )
    commands = found.add_subparsers(
        dest="command_name", metavar="COMMAND", required=True
    )
    for verb in _VERBS:
        words = commands.add_parser(
            verb.name,
            help=verb.help,
            usage=verb.usage,
            description=verb.description,
            epilog=verb.example and f"For example: {verb.example}",
        )
        verb.add_arguments(words)
        words.set_defaults(verb=verb)
    return found


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
        arguments = parser().parse_args(argv)
        return int(arguments.verb.run(arguments))
    except UsageError as error:
        return refused(error)
