"""`keras-ring doctor`: a diagnosis of a job from its flight records."""

import argparse
import os
from pathlib import Path

from keras_ring.launch.cli import doctor
from keras_ring.launch.cli.activities import activities
from keras_ring.launch.cli.flight_log import FlightLogError, read_flight_logs
from keras_ring.launch.cli.verb import Verb
from keras_ring.launch.usage import UsageError


def diagnosis(directory: Path) -> list[str]:
    """Returns lines that tell what went wrong in a job.

    Args:
        directory: Path of the directory with the flight records of its ranks.

    Raises:
        FlightLogError: If there are no records, or they cannot be read.
    """
    logs = read_flight_logs(directory)
    return doctor.report(logs, activities(logs, os.environ))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", help="where the flight.*.json are"
    )


def _run(arguments: argparse.Namespace) -> int:
    try:
        lines = diagnosis(Path(arguments.directory))
    except FlightLogError as error:
        raise UsageError(str(error)) from None
    print("\n".join(lines))
    return 0


DOCTOR = Verb(
    name="doctor",
    help="say which rank of a job went another way, from flight records",
    description="Joins the flight records that the ranks of a job have left,"
    " and says in a paragraph which of them went another way first, and how.",
    example="keras-ring doctor flights/",
    add_arguments=_add_arguments,
    run=_run,
)
