"""Of a plan, what the job shows of its ranks, and what it leaves of them."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from keras_ring._launch_protocol import (
    auto_options,
    contract,
    log_source,
    trace_context,
)
from keras_ring._launch_protocol.job_id import job_id
from keras_ring._launch_protocol.log_source import LogSource
from keras_ring._launch_protocol.trace_context import TraceContext
from keras_ring.launcher.output_files import OutputFiles
from keras_ring.launcher.places import absolute, temporary_directory
from keras_ring.launcher.request import RunRequest
from keras_ring.launcher.rotation import check_backups, parse_limit
from keras_ring.launcher.usage import UsageError

# Files of a rank's stream beside the one that is written to.
_BACKUPS = 3
# Values of `--stdout`.
RANK_0, ALL = "rank0", "all"


def shown_stdout(option: str | None, environment: Mapping[str, str]) -> str:
    """Returns of which ranks standard output is shown.

    Args:
        option: Value of `--stdout`.
        environment: That of the ranks.

    Raises:
        UsageError: If the option is wrong.
    """
    if option is None:
        # As of the one process for which the program was written.
        return RANK_0 if auto_options.is_on(environment) else ALL
    if option not in (RANK_0, ALL):
        raise UsageError(f"--stdout {option!r}: expected {RANK_0} or {ALL}")
    return option


def output_files(request: RunRequest) -> OutputFiles:
    """Returns the files that keep what ranks print.

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
    """Returns who says what the launcher says, and tells the ranks.

    Args:
        request: What the user asked for.
        environment: That of the ranks.
        key: The secret of the job.

    Returns:
        None where lines are text.

    Raises:
        UsageError: If the format is none.
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
    """Returns the file of the timeline, and tells the ranks.

    Args:
        option: Value of `--timeline`.
        environment: That of the ranks.

    Returns:
        None if there is to be none.

    Raises:
        UsageError: If there cannot be such a file.
    """
    told = environment.pop(contract.TIMELINE, None)
    text = told if option is None else option
    # A rank that starts a job of its own has that of the job it belongs to.
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
    """Returns the host and the port of metrics; None for none.

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
    """Returns where ranks leave flight records, and tells them.

    Args:
        output: The files that keep what they print.
        environment: That of the ranks.

    Returns:
        None if they are to leave none.
    """
    text = environment.setdefault(
        contract.FLIGHT_DIRECTORY, str(_default_flights(output.directory))
    )
    return None if text == contract.NO_FLIGHT_DIRECTORY else Path(text)


def _default_flights(output_dir: Path | None) -> Path:
    if output_dir is not None:
        return OutputFiles.flights(absolute(output_dir))
    # Nobody can guess it, so nobody can have prepared it; and there is none
    # until a rank has something to tell.
    name = f"keras-ring-flight-{secrets.token_hex(8)}"
    return temporary_directory() / name
