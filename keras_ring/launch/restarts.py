"""Starts a job again that the failure of a rank has ended.

The program begins anew, and goes on where it has saved its state, as with
`kr.callbacks.BackupAndRestore`. Each start is a job of its own: with a key, a
timeline, flight records and files of output, which leave those of the failed
ones as they are.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from keras_ring.launch.directories import absolute
from keras_ring.launch.job import new_key
from keras_ring.launch.job_end import JobEnd
from keras_ring.launch.output_files import OutputFiles
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import contract
from keras_ring.protocol.job_id import job_id

_MOST = 1_000_000


def parse_restarts(text: str | None) -> int:
    """Returns the value of `--restarts`.

    Args:
        text: String, or `None` for the default, `0`.

    Raises:
        UsageError: If it is no number of restarts.
    """
    if text is None:
        return 0
    if not text.isdecimal() or int(text) > _MOST:
        raise UsageError(
            f"--restarts {text}: expected a number from 0 to {_MOST}"
        )
    return int(text)


def starts(plan: LaunchPlan, restarts: int) -> Iterator[LaunchPlan]:
    """Yields the plan of each start of a job, the first of which is given.

    Args:
        plan: `LaunchPlan` of the first start.
        restarts: Integer, the number of further ones.
    """
    yield plan
    for number in range(1, restarts + 1):
        yield _again(plan, number)


def is_of_use(end: JobEnd) -> bool:
    """Returns whether a job that has ended may be started again.

    It is not if no rank has called `keras_ring.init()`: whatever ended it, such
    as a mistake in the program, will be there again.

    Args:
        end: `JobEnd` of the job.
    """
    return end.first is not None and end.stop_signal is None and end.started


def _again(plan: LaunchPlan, number: int) -> LaunchPlan:
    key = new_key()
    environment = {**plan.environment, contract.RESTART: str(number)}
    output, flights = _outputs_again(plan, number)
    if flights is not None:
        environment[contract.FLIGHT_DIRECTORY] = str(flights)
    timeline = plan.timeline
    if timeline is not None:
        timeline = _numbered(timeline, number)
        environment[contract.TIMELINE] = str(timeline)
    source = plan.log_source
    if source is not None:
        source = replace(source, job=job_id(key))
    return replace(
        plan,
        key=key,
        environment=environment,
        output=output,
        flight_directory=flights,
        timeline=timeline,
        log_source=source,
        # They were printed before the first start.
        notes=(),
    )


def _outputs_again(
    plan: LaunchPlan, number: int
) -> tuple[OutputFiles, Path | None]:
    """Returns the files of output, and the directory of flight records."""
    output, flights = plan.output, plan.flight_directory
    if output.directory is None:
        return output, flights and _numbered(flights, number)
    directory = _numbered(output.directory, number)
    if flights is not None:
        is_default = flights == OutputFiles.flights(absolute(output.directory))
        flights = (
            OutputFiles.flights(absolute(directory))
            if is_default
            else _numbered(flights, number)
        )
    return replace(output, directory=directory), flights


def _numbered(path: Path, number: int) -> Path:
    """Returns a path beside another one, such as `trace.restart-1.json.gz`."""
    stem, dot, rest = path.name.partition(".")
    if not stem:
        stem, dot, rest = path.name, "", ""
    return path.with_name(f"{stem}.restart-{number}{dot}{rest}")
