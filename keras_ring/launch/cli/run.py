"""`keras-ring run`: runs a job, and reports how it ended."""

import argparse
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from keras_ring.core.engines.known import identity_among_several
from keras_ring.launch import standard_input
from keras_ring.launch.cli.diagnosis import diagnosis
from keras_ring.launch.cli.flight_log import FlightLogError
from keras_ring.launch.cli.run_arguments import add_run_arguments, plan_of
from keras_ring.launch.cli.verb import Verb, refused
from keras_ring.launch.cluster import run_plan
from keras_ring.launch.job_end import JobEnd
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.preflight import HostsError
from keras_ring.launch.python_command import deaf_option
from keras_ring.launch.restarts import is_of_use, parse_restarts, starts
from keras_ring.launch.summary import (
    RankEnd,
    failure_keys,
    failure_lines,
    job_exit_code,
    killed_lines,
)
from keras_ring.launch.usage import UsageError, say, speaking_as
from keras_ring.protocol import auto_options, contract
from keras_ring.protocol.log_source import JSON, LogSource
from keras_ring.protocol.trace_context import TraceContext

_FAILED = 1


def _warn_of_several(environment: Mapping[str, str]) -> None:
    """Prints a message if an engine has started this command several times.

    That may be intended, for a sweep of jobs. Otherwise it would go unnoticed.
    """
    if environment.get(contract.SIZE):
        return
    found = identity_among_several(environment)
    if found is None or found[1].rank is None or found[1].size is None:
        return
    _, identity = found
    say(
        f"this is process {identity.rank} of {identity.size} that"
        f" {identity.engine} has started, and each of them starts a job of its"
        " own; for one job, leave out either keras-ring run or"
        f" {identity.engine}"
    )


def _run(arguments: argparse.Namespace) -> int:
    asked = arguments.log_format or os.environ.get(contract.LOG_FORMAT)
    # The source of messages before there is a job.
    source = LogSource(trace=TraceContext.of(os.environ))
    with speaking_as(source if asked == JSON else None):
        try:
            _warn_of_several(os.environ)
            restarts = parse_restarts(arguments.restarts)
            if restarts and arguments.host_discovery_script is not None:
                raise UsageError(
                    "--restarts: a job starts again on the hosts of its first"
                    " start, and --host-discovery-script tells of others; give"
                    " one of them"
                )
            plan = plan_of(arguments, os.environ)
            given = standard_input.read(plan.command, arguments.stdin)
            plan = replace(plan, stdin=given)
            return _run_plans(plan, restarts)
        except UsageError as error:
            return refused(error)
        except KeyboardInterrupt:
            # A running job handles signals itself; there is no job yet.
            return 128 + signal.SIGINT


def _run_plans(first: LaunchPlan, restarts: int) -> int:
    """Runs a job, and again if a rank fails; returns the last exit code."""
    code = 0
    for number, plan in enumerate(starts(first, restarts)):
        with speaking_as(plan.log_source):
            end = _run_plan(plan)
            if end is None:
                return _FAILED
            code = report(end, plan)
            if end.first is None or number == restarts:
                return code
            if not is_of_use(end):
                say(
                    "not started again, as no rank had called"
                    " keras_ring.init() before the failure"
                )
                return code
            say(f"starts the job again: restart {number + 1} of {restarts}")
    return code


def _run_plan(plan: LaunchPlan) -> JobEnd | None:
    """Runs a job; returns its end, or `None` if it could not start."""
    plan.output.prepare(plan.size)
    try:
        return run_plan(plan)
    except HostsError as error:
        say(str(error), level="error")
    except OSError as error:
        # There are no more processes or descriptors, or no room for files.
        say(f"cannot run the job: {error}", level="error")
    return None


def report(end: JobEnd, plan: LaunchPlan) -> int:
    """Reports how a job ended, and returns the exit code."""
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
    """Returns why the ranks did not form a job."""
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
    """Prints the diagnosis of the ranks' flight records, if there are any."""
    if directory is None:
        return
    try:
        if not directory.is_dir():
            return
        lines = diagnosis(directory)
    except (FlightLogError, OSError) as error:
        lines = [f"unreadable flight records: {error}"]
    for line in lines:
        say(line)
    say(f"the ranks' flight records are in {directory}")


RUN = Verb(
    name="run",
    help="run a training script on several ranks",
    usage="keras-ring run -np N [options] -- python train.py [...]",
    description="Starts N ranks of a command, on this host or on several.",
    example="keras-ring run --auto -np 4 -- python train.py",
    add_arguments=add_run_arguments,
    run=_run,
)
