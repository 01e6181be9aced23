"""The `keras-ring` command."""

import argparse
import importlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from keras_ring._engines.known import place_among_several
from keras_ring._launch_protocol import (
    auto_options,
    contract,
    standard_streams,
)
from keras_ring._launch_protocol.log_source import JSON, LogSource
from keras_ring._launch_protocol.trace_context import TraceContext
from keras_ring._version import __version__
from keras_ring.cli import check_hosts, doctor
from keras_ring.cli.activities import activities
from keras_ring.cli.bench_arguments import (
    add_bench_arguments,
    check_bench_arguments,
)
from keras_ring.cli.flight_log import FlightLogError, read_flight_logs
from keras_ring.cli.run_arguments import (
    add_host_arguments,
    add_run_arguments,
    hosts_of,
    plan_of,
)
from keras_ring.cli.template import add_template_arguments, template
from keras_ring.cli.top import (
    add_status_arguments,
    add_top_arguments,
    status,
    top,
)
from keras_ring.launcher import standard_input
from keras_ring.launcher.cluster import run_plan
from keras_ring.launcher.plan import (
    LaunchPlan,
    plan_of_hosts,
)
from keras_ring.launcher.preflight import HostsError
from keras_ring.launcher.python_command import deaf_option
from keras_ring.launcher.request import RunRequest
from keras_ring.launcher.summary import (
    RankEnd,
    failure_keys,
    failure_lines,
    job_exit_code,
    killed_lines,
)
from keras_ring.launcher.supervisor import JobEnd
from keras_ring.launcher.usage import UsageError, say, speaking_as

_LOOKING = {"top": top, "status": status}
_USAGE_ERROR = 2
_FAILED = 1


class _Parser(argparse.ArgumentParser):
    """Raises on bad usage, so that one place prints one line."""

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
    run = commands.add_parser(
        "run",
        help="run a training script on several ranks",
        usage="keras-ring run -np N [options] -- python train.py [...]",
        description="Starts N ranks of a command, on this host or on several.",
        allow_abbrev=False,
    )
    add_run_arguments(run)
    check = commands.add_parser(
        "check",
        help="say whether a job can run here, and what is missing",
        allow_abbrev=False,
    )
    check.add_argument(
        "--json", action="store_true", help="print one JSON object"
    )
    check.add_argument(
        "-np",
        type=int,
        metavar="N",
        help="also say whether N ranks fit on this host",
    )
    add_host_arguments(check)
    diagnosis = commands.add_parser(
        "doctor",
        help="say which rank of a job went another way, from flight records",
        description="Joins the flight records that the ranks of a job have"
        " left, and says in a paragraph which of them went another way first,"
        " and how.",
        allow_abbrev=False,
    )
    diagnosis.add_argument(
        "directory", metavar="DIR", help="where the flight.*.json are"
    )
    add_top_arguments(
        commands.add_parser(
            "top",
            help="watch a running job: rates, who waits for whom, and why",
            allow_abbrev=False,
        )
    )
    add_status_arguments(
        commands.add_parser(
            "status",
            help="print what a running job does, once",
            allow_abbrev=False,
        )
    )
    bench = commands.add_parser(
        "bench",
        help="measure collectives; under `run`, or alone",
        allow_abbrev=False,
    )
    add_bench_arguments(bench)
    report = commands.add_parser(
        "report",
        help="make a page of what a timeline tells: what is slow, and why",
        allow_abbrev=False,
    )
    report.add_argument(
        "timeline", metavar="FILE", help="of --timeline, or FILE.ranks"
    )
    report.add_argument(
        "-o",
        dest="page",
        metavar="F",
        help="the page (default: report.html beside the timeline)",
    )
    template = commands.add_parser(
        "template",
        help="print a file that starts a job by Slurm, MPI, Ray or Kubernetes",
        allow_abbrev=False,
    )
    add_template_arguments(template)
    return parser


def _warn_of_several(environment: Mapping[str, str]) -> None:
    """Says that an engine has started several of this command.

    That may be meant: a sweep of jobs. Else it would not be noticed.
    """
    if environment.get(contract.SIZE):
        return
    found = place_among_several(environment)
    if found is None or found[1].rank is None or found[1].size is None:
        return
    _, place = found
    say(
        f"this is process {place.rank} of {place.size} that {place.engine} has"
        " started, and each of them starts a job of its own; for one job, leave"
        f" out either keras-ring run or {place.engine}"
    )


def _run(arguments: argparse.Namespace) -> int:
    asked = arguments.log_format or os.environ.get(contract.LOG_FORMAT)
    # Until there is a job.
    source = LogSource(trace=TraceContext.of(os.environ))
    with speaking_as(source if asked == JSON else None):
        try:
            _warn_of_several(os.environ)
            plan = plan_of(arguments, os.environ)
            given = standard_input.read(plan.command, arguments.stdin)
            plan = replace(plan, stdin=given)
            with speaking_as(plan.log_source):
                return _run_plan(plan)
        except UsageError as error:
            return _refused(error)
        except KeyboardInterrupt:
            # Before there is a job, which takes the signals.
            return 128 + signal.SIGINT


def _refused(error: UsageError) -> int:
    say(str(error), level="error")
    return _USAGE_ERROR


def _run_plan(plan: LaunchPlan) -> int:
    plan.output.prepare(plan.size)
    try:
        end = run_plan(plan)
    except HostsError as error:
        say(str(error), level="error")
        return _FAILED
    except OSError as error:
        # No more processes, descriptors, or room for files.
        say(f"cannot run the job: {error}", level="error")
        return _FAILED
    return _report(end, plan)


def _report(end: JobEnd, plan: LaunchPlan) -> int:
    if end.leftover:
        say(f"ended {end.leftover} process(es) that the ranks had left")
    if end.first is not None:
        _report_failure(end, end.first, as_text=plan.log_source is None)
        _report_flights(plan.flight_directory)
        return job_exit_code(end.first)
    if end.stop_signal is not None:
        if end.stop_signal != signal.SIGPIPE:
            name = signal.Signals(end.stop_signal).name
            say(f"ended by {name} after {end.seconds:.1f} s")
        for line in killed_lines(end.ends):
            say(line, level="warning")
        codes = [rank_end.returncode for rank_end in end.ends]
        clean = bool(codes) and not any(codes)
        return 0 if clean else 128 + end.stop_signal
    if len(end.ends) > 1 and not end.started:
        say(_why_apart(plan))
    return 0


def _why_apart(plan: LaunchPlan) -> str:
    """Says of ranks that had nothing to do with each other why."""
    apart = f"these were {plan.size} programs, each on its own"
    if not auto_options.is_on(plan.environment):
        return f"no rank has called keras_ring.init(): {apart}"
    if option := deaf_option(plan.command):
        return (
            f"--auto did nothing, and {apart}: with {option}, Python ignores"
            " what --auto puts before a program (PYTHONPATH); leave it out, or"
            " begin the program with `import keras_ring.auto`"
        )
    return (
        f"--auto did nothing, and {apart}: no rank has imported Keras or"
        " TensorFlow in a Python that heeds PYTHONPATH, by which --auto starts"
        " (docs/launching.md)"
    )


def _report_failure(end: JobEnd, first: RankEnd, *, as_text: bool) -> None:
    if as_text:
        for line in failure_lines(first, end.ends, end.tail, end.seconds):
            say(line)
        return
    lines = failure_lines(first, end.ends, None, end.seconds)
    keys = failure_keys(first, end.tail, end.seconds)
    say("\n".join(lines), level="error", **keys)


def _report_flights(directory: Path | None) -> None:
    """Says what the ranks' flight records tell, if they have left any."""
    if directory is None:
        return
    try:
        if not directory.is_dir():
            return
        lines = _diagnosis(directory)
    except (FlightLogError, OSError) as error:
        lines = [f"unreadable flight records: {error}"]
    for line in lines:
        say(line)
    say(f"the ranks' flight records are in {directory}")


def _diagnosis(directory: Path) -> list[str]:
    logs = read_flight_logs(directory)
    return doctor.report(logs, activities(logs, os.environ))


def _doctor(directory: str) -> int:
    try:
        lines = _diagnosis(Path(directory))
    except FlightLogError as error:
        raise UsageError(str(error)) from None
    print("\n".join(lines))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    if arguments.hosts is not None or arguments.hostfile is not None:
        request = RunRequest(command=(), **hosts_of(arguments))
        plan = plan_of_hosts(request, {socket.gethostname()}, os.environ)
        return check_hosts.run(plan, as_json=arguments.json)
    from keras_ring.cli.check import run_check

    if arguments.np is not None and arguments.np < 1:
        raise UsageError(f"-np {arguments.np}: expected at least 1")
    return run_check(as_json=arguments.json, num_ranks=arguments.np)


def _bench(arguments: argparse.Namespace) -> int:
    try:
        check_bench_arguments(arguments)
    except ValueError as error:
        raise UsageError(str(error)) from None
    # By name: the launcher itself needs no NumPy and no TensorFlow.
    command = importlib.import_module("keras_ring.bench.command")
    return int(command.run(arguments))


def _make_report(arguments: argparse.Namespace) -> int:
    try:
        # By name: the launcher itself needs no NumPy, and no plots.
        command = importlib.import_module("keras_ring.report.command")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the `keras-ring` command.

    Args:
        argv: The words after the program's name. Defaults to those of this
            process.

    Returns:
        The exit code: 0 for success, 2 for bad input, 1 for a benchmark with
        a wrong result, else that of the first failing rank.
    """
    standard_streams.fill_closed()
    try:
        arguments = _parser().parse_args(argv)
        if arguments.command_name == "check":
            return _check(arguments)
        if arguments.command_name == "bench":
            return _bench(arguments)
        if arguments.command_name == "doctor":
            return _doctor(arguments.directory)
        if arguments.command_name == "report":
            return _make_report(arguments)
        if arguments.command_name == "template":
            print(template(arguments), end="")
            return 0
        if arguments.command_name in _LOOKING:
            return _LOOKING[arguments.command_name](arguments)
        return _run(arguments)
    except UsageError as error:
        return _refused(error)
