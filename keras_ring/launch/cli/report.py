"""`keras-ring report`: a page made from a timeline."""

import argparse
import importlib

from keras_ring.launch.cli.verb import Verb
from keras_ring.launch.usage import UsageError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "timeline", metavar="FILE", help="of --timeline, or FILE.ranks"
    )
    parser.add_argument(
        "-o",
        dest="page",
        metavar="F",
        help="the page (default: report.html beside the timeline)",
    )


def _run(arguments: argparse.Namespace) -> int:
    try:
        # Imported here, because the launcher itself needs no NumPy and no
        # plots.
        command = importlib.import_module("keras_ring.observe.report.command")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}; install what a report needs: pip"
            " install 'keras-ring[report]'"
        ) from None
    try:
        page, sentences = command.run(arguments.timeline, arguments.page)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    print("\n".join(sentences))
    print(f"report in {page}; open it with a browser")
    return 0


REPORT = Verb(
    name="report",
    help="make a page of what a timeline tells: what is slow, and why",
    example="keras-ring report timeline.json",
    add_arguments=_add_arguments,
    run=_run,
)
