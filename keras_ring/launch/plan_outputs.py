"""The outputs of a plan: shown streams, files, timeline and metrics."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from keras_ring.launch.directories import absolute, temporary_directory
from keras_ring.launch.output_files import OutputFiles
from keras_ring.launch.request import RunRequest
from keras_ring.launch.rotation import check_backups, parse_limit
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import (
    auto_options,
    contract,
    log_source,
    trace_context,
)
from keras_ring.protocol.job_id import job_id
from keras_ring.protocol.log_source import LogSource
from keras_ring.protocol.trace_context import TraceContext

# Default number of full files of a stream beside the current one.
_BACKUPS = 3
# Values of `--stdout`.
RANK_0, ALL = "rank0", "all"


def shown_stdout(option: str | None, environment: Mapping[str, str]) -> str:
    """Returns the ranks whose standard output is shown, `ALL` or `RANK_0`.

    Args:
        option: String, the value of `--stdout`, or `None`.
        environment: The environment variables of the ranks.

    Raises:
        UsageError: If the option is wrong.
    """
    if option is None:
        # With `--auto`, the output looks like that of a single process.
        return RANK_0 if auto_options.is_on(environment) else ALL
    if option not in (RANK_0, ALL):
        raise UsageError(f"--stdout {option!r}: expected {RANK_0} or {ALL}")
    return option


def output_files(request: RunRequest) -> OutputFiles:
    """Returns the files that keep the ranks' output.

    Raises:
        UsageError: If their options are wrong.
    """
    limit, backups = request.output_max_bytes, request.output_backups
    if request.output_dir is None and limit is not None:
        raise UsageError("--output-max-bytes is for files, of --output-dir")
    if limit is None and backups is not None:
        raise UsageError("--output-backups is for files of --output-max-bytes")
    return OutputFiles(
        Path(request.output_dir) if request.output_dir else None,
        limit=0 if limit is None else parse_limit(limit),
        backups=check_backups(_BACKUPS if backups is None else backups),
    )


def launcher_log_source(
    request: RunRequest, environment: dict[str, str], key: str
) -> LogSource | None:
    """Returns the source of the launcher's own lines.

    Also sets the variables of the ranks for the format of lines.

    Args:
        request: `RunRequest` of the user.
        environment: The environment variables of the ranks, which are changed.
        key: String, the secret of the job.

    Returns:
        The `LogSource`, or `None` if lines are text.

    Raises:
        UsageError: If the format is unknown.
    """
    if request.log_format is not None:
        environment[contract.LOG_FORMAT] = request.log_format
    format_ = environment.get(contract.LOG_FORMAT) or log_source.TEXT
    if format_ not in log_source.FORMATS:
        what = f"{contract.LOG_FORMAT} is"
        if request.log_format is not None:
            what = "--log-format"
        raise UsageError(f"{what} {format_!r}: expected text or json")
    if format_ == log_source.TEXT:
        return None
    trace = TraceContext.of_launcher(environment)
    environment[trace_context.VARIABLE] = trace.header
    return LogSource(job=job_id(key), trace=trace)


def timeline_file(
    option: str | None, environment: dict[str, str]
) -> Path | None:
    """Returns the file of the timeline, and sets the variable of the ranks.

    Args:
        option: String, the value of `--timeline`, or `None`.
        environment: The environment variables of the ranks, which are changed.

    Returns:
        Path of the file, or `None` for no timeline.

    Raises:
        UsageError: If such a file cannot be made.
    """
    told = environment.pop(contract.TIMELINE, None)
    text = told if option is None else option
    # In a rank that starts another job, the variable is that of its own job.
    if option is None and (not text or contract.RANK in environment):
        return None
    what = f"{contract.TIMELINE} is" if option is None else "--timeline"
    # Ranks may have another working directory.
    path = absolute(text or "")
    if not text or path.is_dir():
        raise UsageError(f"{what} {text!r}: expected the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{what} {text!r}: there is no {path.parent}")
    environment[contract.TIMELINE] = str(path)
    return path


def metrics_address(request: RunRequest) -> tuple[str, int] | None:
    """Returns the host and the port of metrics, or `None` for no metrics.

    Raises:
        UsageError: If their options are wrong.
    """
    port, host = request.metrics_port, request.metrics_host
    if port is None:
        if host is not None:
            raise UsageError(
                f"--metrics-host {host}: say on which port, by --metrics-port"
            )
        return None
    if not 0 <= port < 1 << 16:
        raise UsageError(
            f"--metrics-port {port}: expected a port from 1 to 65535, or 0 for"
            " any"
        )
    return ("127.0.0.1" if host is None else host), port


def flight_directory(
    output: OutputFiles, environment: dict[str, str]
) -> Path | None:
    """Returns the directory of flight records, and sets the ranks' variable.

    Args:
        output: `OutputFiles` that keep the ranks' output.
        environment: The environment variables of the ranks, which are changed.

    Returns:
        Path of the directory, or `None` for no flight records.
    """
    text = environment.setdefault(
        contract.FLIGHT_DIRECTORY, str(_default_flights(output.directory))
    )
    return None if text == contract.NO_FLIGHT_DIRECTORY else Path(text)


def _default_flights(output_dir: Path | None) -> Path:
    if output_dir is not None:
        return OutputFiles.flights(absolute(output_dir))
    # Other users cannot guess the name, so they cannot make the directory
    # first. It is made when a rank writes the first record.
    name = f"keras-ring-flight-{secrets.token_hex(8)}"
    return temporary_directory() / name
