"""`keras-ring top` and `keras-ring status`: show a running job."""

import argparse
import importlib
import json
import os
import threading
from collections.abc import Callable
from typing import Any

from keras_ring.errors import ConfigurationError
from keras_ring.launch.cli.verb import Verb
from keras_ring.launch.usage import UsageError, say
from keras_ring.observe import jobs
from keras_ring.observe.directory import status_directory
from keras_ring.observe.record import record
from keras_ring.observe.view import JobView, view

_NONE = 1
_SEVERAL = 2
_ONCE_ROWS = 20
_MISSING = (
    "keras-ring top needs rich: pip install 'keras-ring[top]', or pip install"
    " rich; keras-ring status needs nothing"
)


def _add_top_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-ring top`."""
    _add_common_arguments(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="print what is seen in one interval, as plain text, and end",
    )
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="show at most N ranks (default: as many as fit; with --once"
        f" {_ONCE_ROWS})",
    )


def _add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-ring status`."""
    _add_common_arguments(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object (docs/watching.md has its keys)",
    )


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="the beginning of its name, or the process id of a rank or of"
        " keras-ring run (default: the one that runs)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds between two looks (default: 1)",
    )


def _top(arguments: argparse.Namespace) -> int:
    """Shows a job until it ends or the user stops; returns the exit code."""
    if arguments.rows is not None and arguments.rows < 1:
        raise UsageError(f"--rows {arguments.rows}: expected at least 1")
    try:
        # Imported here, because other verbs need no rich.
        screen = importlib.import_module("keras_ring.launch.cli.top_screen")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise UsageError(_MISSING) from None

    def show(job: jobs.Job) -> int:
        if arguments.once:
            seen = _look_twice(job, arguments.interval)
            return _tell(
                seen,
                job,
                lambda told: screen.print_once(
                    told, arguments.rows or _ONCE_ROWS
                ),
            )
        return int(screen.follow(job, arguments.interval, arguments.rows))

    return _with_job(arguments, show)


def _status(arguments: argparse.Namespace) -> int:
    """Prints the state of a job, and returns the exit code."""

    def show(job: jobs.Job) -> int:
        seen = _look_twice(job, arguments.interval)
        return _tell(seen, job, lambda told: _print(told, arguments.json))

    return _with_job(arguments, show)


def _print(job: JobView, as_json: bool) -> None:
    told = record(job)
    if as_json:
        print(json.dumps(told))
        return
    for name in ("job", "command", "size", "hosts", "seconds", "epoch"):
        print(f"{name}: {_text(told[name])}")
    for name in ("steps_per_second", "samples_per_second"):
        print(f"{name}: {_text(told[name])}")
    for message in told["messages"]:
        print(message)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, tuple):
        return ", ".join(value)
    return "unknown" if value is None else str(value)


def _with_job(
    arguments: argparse.Namespace, show: Callable[[jobs.Job], int]
) -> int:
    if not 0.0 < arguments.interval <= 3600.0:
        raise UsageError(
            f"--interval {arguments.interval}: expected seconds, above 0 and at"
            " most 3600"
        )
    try:
        directory = status_directory(os.environ)
        if directory is None:
            raise UsageError(
                "KERAS_RING_STATUS_DIR is off, so jobs show nothing here"
            )
        found = jobs.clean(jobs.find_jobs(directory))
        return show(jobs.pick(found, arguments.job))
    except ConfigurationError as error:
        raise UsageError(str(error)) from None
    except jobs.NoJobError as error:
        say(str(error))
        return _NONE
    except jobs.SeveralJobsError as error:
        say(f"there are {error}")
        for job in error.jobs:
            say(f"  {describe(job)}")
        return _SEVERAL


def describe(job: jobs.Job) -> str:
    """Returns a line that describes a job."""
    if not job.pages:
        return f"{job.id}  no rank here"
    page = job.pages[0]
    state = "" if job.runs else "  (has ended)"
    return f"{job.id}  {page.size} ranks  {page.command}{state}"


def _look_twice(job: jobs.Job, interval: float) -> JobView | None:
    before = job.read()
    # The pages of a dead job do not change.
    if not before.runs:
        return view((), before.pages)
    threading.Event().wait(interval)
    return view(before.pages, job.read().pages)


def _tell(
    seen: JobView | None, job: jobs.Job, tell: Callable[[JobView], None]
) -> int:
    if seen is None:
        say(f"no rank of job {job.id} shows anything: it starts, or has ended")
        return _NONE
    tell(seen)
    return 0


TOP = Verb(
    name="top",
    help="watch a running job: rates, who waits for whom, and why",
    example="keras-ring top",
    add_arguments=_add_top_arguments,
    run=_top,
)
STATUS = Verb(
    name="status",
    help="print what a running job does, once",
    example="keras-ring status",
    add_arguments=_add_status_arguments,
    run=_status,
)
