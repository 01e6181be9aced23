"""The options of `keras-ring run`, and the plan that is made of them."""

import argparse
import socket
from collections.abc import Mapping
from typing import Any

from keras_ring.launch.cli.parser import meant
from keras_ring.launch.plan import LaunchPlan, make_plan
from keras_ring.launch.request import AUTOMATIC, RunRequest
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import auto_options
from keras_ring.protocol.time_limits import CONNECT_TIMEOUT, LIMITS, NEVER


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options for hosts, which `check` has as well."""
    run = parser.add_argument_group("hosts")
    run.add_argument(
        "-H",
        "--hosts",
        metavar="HOST:SLOTS",
        help="where to run, for example node1:4,node2:4 (default: this host)",
    )
    run.add_argument(
        "--hostfile",
        metavar="F",
        help="the same in a file, a host on each line: node1 slots=4",
    )
    run.add_argument(
        "--ssh-port",
        "-p",
        type=int,
        metavar="P",
        help="port of the hosts' sshd",
    )
    run.add_argument(
        "--ssh-identity", metavar="F", help="private key for the hosts"
    )
    run.add_argument(
        "--rsh",
        metavar="COMMAND",
        help="what to use in place of ssh, for example 'ssh -F config'",
    )
    _add_limit(run, CONNECT_TIMEOUT)
    run.add_argument(
        "--interface",
        "--network-interface",
        "--network-interfaces",
        metavar="I",
        help="by which network ranks reach each other: names, addresses or"
        " networks, such as eth0 or 10.0.0.0/8 (default: any that works)",
    )
    run.add_argument(
        "--port-range",
        metavar="A-B",
        help="ports on which ranks may listen, one for each rank of a host "
        "(default: any)",
    )


def _add_limit(run: argparse._ArgumentGroup, name: str) -> None:
    limit = LIMITS[name]
    run.add_argument(
        limit.option,
        metavar="S",
        help=f"{limit.meaning} (default: {limit.default:g}"
        + (f"; {NEVER}: no limit)" if limit.may_be_never else ")"),
    )


def number_of_ranks(text: str) -> int | str:
    """Returns the value of `-np`.

    Args:
        text: String, as the user has written it.

    Raises:
        argparse.ArgumentTypeError: If it is no number, and not `auto`.
    """
    if text == AUTOMATIC:
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of ranks{meant(text, [AUTOMATIC])};"
            " expected one such as 2, or auto"
        ) from None


def add_run_arguments(run: argparse.ArgumentParser) -> None:
    """Adds the options and the command of `keras-ring run`."""
    run.add_argument(
        "-np",
        "--num-proc",
        dest="np",
        type=number_of_ranks,
        metavar="N",
        help="number of ranks, or auto: one for each GPU of this host, or each"
        " core where there is none; with hosts, one for each of their slots",
    )
    _add_auto_arguments(run)
    add_host_arguments(run)
    _add_stream_arguments(run)
    _add_time_limits(run)
    _add_processor_arguments(run)
    _add_watching_arguments(run)
    _add_autotune_arguments(run)
    run.add_argument(
        "command", nargs=argparse.REMAINDER, help="program and arguments"
    )


def _add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("what ranks read and print")
    run.add_argument(
        "--env",
        dest="variables",
        action="append",
        default=[],
        metavar="K=V",
        help="set a variable for the ranks (may be repeated)",
    )
    run.add_argument(
        "--stdin",
        metavar="S",
        help="what ranks read from standard input: all, each of them all that"
        " this command is given, or none (default: all of a file, and where the"
        " command takes its program from there, as python - does)",
    )
    run.add_argument(
        "--stdout",
        metavar="R",
        help="whose standard output is shown: rank0, or all (default: all; of"
        " --auto rank0)",
    )
    run.add_argument(
        "--fold",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether a line that several ranks print alike to standard error"
        " is shown once (default: it is)",
    )
    run.add_argument(
        "--prefix-timestamp",
        action="store_true",
        help="start each line of output with the time",
    )
    run.add_argument(
        "--output-dir",
        "--output-filename",
        metavar="D",
        help="also write each rank's output to D/rank.N/stdout and stderr",
    )
    run.add_argument(
        "--output-max-bytes",
        metavar="B",
        help="put such a file aside when it is full, as stdout.1 and so on,"
        " for example 100M (default: no limit)",
    )
    run.add_argument(
        "--output-backups",
        type=int,
        metavar="N",
        help="files to keep beside each that is written to (default: 3)",
    )
    run.add_argument(
        "--log-level", metavar="L", help="debug, info, warning, error, off"
    )
    run.add_argument(
        "--verbose",
        dest="log_level",
        action="store_const",
        const="info",
        help="the same as --log-level info",
    )
    run.add_argument(
        "--log-format",
        metavar="F",
        help="text, or json: each line an object (default: text)",
    )


def _add_time_limits(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("failures and time limits")
    run.add_argument(
        "--restarts",
        metavar="N",
        help="start the job again, up to N times, when a rank has failed; a"
        " program that saves its state goes on from there (default: 0)",
    )
    run.add_argument(
        "--elastic",
        action="store_true",
        help="go on with the ranks that are left when some were killed, or a"
        " host was lost (under construction)",
    )
    run.add_argument(
        "--min-np",
        metavar="N",
        help="the fewest ranks that --elastic, which this implies, goes on"
        " with; when fewer are left, the job ends, or waits for others to"
        " join (default: 1)",
    )
    run.add_argument(
        "--max-np",
        metavar="N",
        help="start processes that join the job while it has fewer than N"
        " ranks, as in the place of those that are lost; it implies --elastic,"
        " and the program trains in a fit over kr.data.batches or in a function"
        " of kr.elastic.run",
    )
    run.add_argument(
        "--host-discovery-script",
        metavar="COMMAND",
        help="a program that prints the hosts of an elastic job, such as"
        " node1:4, one on each line; it is called every second: what is new"
        " takes ranks, and what is gone loses them",
    )
    run.add_argument(
        "--reset-limit",
        metavar="N",
        help="end an elastic job when its ranks have changed more than N times"
        " (default: no limit)",
    )
    run.add_argument(
        "--start-timeout",
        metavar="S",
        help="seconds that the ranks wait for each other at the start",
    )
    for name in LIMITS:
        if name != CONNECT_TIMEOUT:
            _add_limit(run, name)


def _add_processor_arguments(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("processors and connections")
    run.add_argument(
        "--threads",
        type=int,
        metavar="T",
        help="threads of each rank; 0: as many as its libraries choose"
        " (default: the cores divided by the ranks)",
    )
    run.add_argument(
        "--bind",
        action="store_true",
        help="keep each rank on processors of its own",
    )
    run.add_argument(
        "--tls",
        action=argparse.BooleanOptionalAction,
        help="whether connections between ranks are encrypted (default: not)",
    )


def _add_watching_arguments(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("what a job tells")
    run.add_argument(
        "--timeline",
        "--timeline-filename",
        metavar="F",
        help="record what each rank does, and make one file of it: F.json and"
        " F.json.gz for chrome://tracing, any other name for Perfetto"
        " (docs/timeline.md)",
    )
    run.add_argument(
        "--metrics-port",
        type=int,
        metavar="P",
        help="serve what ranks do to Prometheus on port P (docs/watching.md)",
    )
    run.add_argument(
        "--metrics-host",
        metavar="A",
        help="listen for Prometheus on the address A (default: 127.0.0.1)",
    )


def _add_auto_arguments(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("programs of one process")
    run.add_argument(
        "--auto",
        action="store_const",
        const=auto_options.ON,
        help="train a program of one process on all ranks, unchanged, with the"
        " result of one process (docs/auto.md)",
    )
    # A separate option, because an optional value of --auto would take the
    # word that follows.
    run.add_argument(
        f"--auto={auto_options.EXPLAIN}",
        dest="auto",
        action="store_const",
        const=auto_options.EXPLAIN,
        help="say what --auto does with this program, and train nothing",
    )
    run.add_argument(
        "--batch",
        metavar="B",
        help="of --auto, what the program's batch is: global, that of all ranks"
        " together, or per-rank (default: global)",
    )
    run.add_argument(
        "--scale-learning-rate",
        metavar="S",
        help="of --batch per-rank, by what the learning rate is multiplied:"
        " linear, the number of ranks; sqrt, its root; or keep (default: keep)",
    )
    run.add_argument(
        "--warmup-epochs",
        metavar="N",
        help="epochs in which that learning rate is reached (default: 0)",
    )


def _add_autotune_arguments(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("tuning")
    run.add_argument(
        "--autotune",
        action="store_true",
        help="tune the job while it trains (docs/autotune.md)",
    )
    run.add_argument(
        "--autotune-log-file",
        dest="autotune_log",
        metavar="F",
        help="write what is tried to F, as CSV",
    )
    run.add_argument(
        "--autotune-warmup-samples",
        metavar="N",
        help="samples at the start that do not count (default: 3)",
    )
    run.add_argument(
        "--autotune-steps-per-sample",
        metavar="N",
        help="steps of which a sample is made (default: 10)",
    )
    run.add_argument(
        "--autotune-bayes-opt-max-samples",
        dest="autotune_max_samples",
        metavar="N",
        help="settings to try (default: 20)",
    )


def _autotune_of(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("log", "warmup_samples", "steps_per_sample", "max_samples")
    options = {f"autotune_{name}" for name in names}
    given = {name: getattr(arguments, name) for name in sorted(options)}
    if not arguments.autotune and any(given.values()):
        raise UsageError("there are options of --autotune, but not --autotune")
    return {"autotune": arguments.autotune, **given}


def plan_of(
    arguments: argparse.Namespace, environment: Mapping[str, str]
) -> LaunchPlan:
    """Returns the plan for the arguments of `keras-ring run`.

    Args:
        arguments: The parsed arguments.
        environment: The environment variables of this process.

    Raises:
        UsageError: If any of them is wrong.
    """
    command = list(arguments.command)
    if command[:1] == ["--"]:
        del command[0]
    request = RunRequest(
        command=tuple(command),
        num_ranks=arguments.np,
        **hosts_of(arguments),
        output_dir=arguments.output_dir,
        output_max_bytes=arguments.output_max_bytes,
        output_backups=arguments.output_backups,
        prefix_timestamp=arguments.prefix_timestamp,
        stdout=arguments.stdout,
        variables=tuple(arguments.variables),
        start_timeout=arguments.start_timeout,
        log_level=arguments.log_level,
        log_format=arguments.log_format,
        tls=arguments.tls,
        timeline=arguments.timeline,
        metrics_port=arguments.metrics_port,
        metrics_host=arguments.metrics_host,
        **_autotune_of(arguments),
        auto=arguments.auto,
        auto_batch=arguments.batch,
        auto_learning_rate=arguments.scale_learning_rate,
        auto_warmup_epochs=arguments.warmup_epochs,
        elastic=arguments.elastic,
        min_ranks=arguments.min_np,
        max_ranks=arguments.max_np,
        reset_limit=arguments.reset_limit,
        host_discovery_script=arguments.host_discovery_script,
        threads=arguments.threads,
        bind=arguments.bind,
        fold=arguments.fold,
        in_allocation=True,
    )
    return make_plan(request, environment, own_names={socket.gethostname()})


def _time_limits(arguments: argparse.Namespace) -> dict[str, str]:
    # `check` has only one of these options.
    given = {
        name: getattr(arguments, limit.option[2:].replace("-", "_"), None)
        for name, limit in LIMITS.items()
    }
    return {name: text for name, text in given.items() if text is not None}


def hosts_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the options for hosts as keyword arguments of `RunRequest`."""
    names = ("hosts", "hostfile", "ssh_port", "ssh_identity", "rsh")
    network = ("interface", "port_range")
    given = {name: getattr(arguments, name) for name in (*names, *network)}
    return {**given, "time_limits": _time_limits(arguments)}
