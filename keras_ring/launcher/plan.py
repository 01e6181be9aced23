"""From what the user asked for to a checked plan; nothing is started here."""

import math
import re
import secrets
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from keras_ring._launch_protocol import (
    auto_options,
    contract,
    interfaces,
    log_source,
    trace_context,
)
from keras_ring._launch_protocol.job_id import job_id
from keras_ring._launch_protocol.log_source import LogSource
from keras_ring._launch_protocol.time_limits import LIMITS
from keras_ring._launch_protocol.trace_context import TraceContext
from keras_ring.launcher import tensorflow_lines
from keras_ring.launcher.allocation import allocated_hosts, step_shell
from keras_ring.launcher.hosts import (
    Host,
    HostRanks,
    is_local,
    parse_hosts,
    place_ranks,
    read_hostfile,
)
from keras_ring.launcher.job import new_key
from keras_ring.launcher.output_files import OutputFiles
from keras_ring.launcher.patience import Patience
from keras_ring.launcher.places import (
    absolute,
    temporary_directory,
    working_directory,
)
from keras_ring.launcher.python_command import python_script
from keras_ring.launcher.remote_shell import RemoteShell
from keras_ring.launcher.request import RunRequest
from keras_ring.launcher.rotation import check_backups, parse_limit
from keras_ring.launcher.settings import check_settings
from keras_ring.launcher.sharing import Machine, share_cores
from keras_ring.launcher.usage import UsageError

_MAX_RANKS = 4096
# Files of a rank's stream beside the one that is written to.
_BACKUPS = 3
# Values of `--stdout`.
RANK_0, ALL = "rank0", "all"
# A word of a command: the directory of the plan's files.
FILES = "{files}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A job as it is to be started.

    Args:
        size: Number of ranks.
        command: Program and arguments, the same for every rank.
        environment: What each rank's environment is built on.
        output: The files that keep each rank's output.
        prefix_timestamp: Whether each line of output starts with the time.
        stdout: Of which ranks standard output is shown: `ALL`, or `RANK_0`.
        log_source: Who says what the launcher says, where lines are objects of
            JSON; None where they are text.
        key: The secret of the job.
        flight_directory: Where the ranks leave flight records; None if they
            are to leave none.
        timeline: The file that is made of the ranks' timelines; None for none.
        metrics: Host and port on which metrics are served; None for none.
        fold: Whether lines that ranks print alike to standard error are shown
            once.
        cpus: The processors that each rank may run on; empty for no limit.
            On several hosts each agent divides its own.
        places: The hosts, where any of them is another; else empty.
        shell: How they are reached.
        directory: The working directory of the ranks there.
        interface: Which of their addresses ranks use; `""` for any.
        ports: The first and the last port on which ranks listen.
        files: Directory whose files go to all hosts, where the word `FILES`
            of the command is replaced by theirs, and into which results come.
        threads: Value of `--threads`, for the agents.
        bind: Whether `--bind` was given, for the agents.
        notes: What the user is told before the start, line by line.
        stdin: What each rank reads from standard input.
        open_files: The soft limit of open files of ranks on this host; None
            for that of this process.
        patience: How long is waited for ranks and hosts.
    """

    size: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    output: OutputFiles = field(default_factory=OutputFiles)
    prefix_timestamp: bool = False
    stdout: str = ALL
    log_source: LogSource | None = None
    key: str = field(default_factory=new_key, repr=False)
    flight_directory: Path | None = None
    timeline: Path | None = None
    metrics: tuple[str, int] | None = None
    fold: bool = True
    cpus: tuple[tuple[int, ...], ...] = ()
    places: tuple[HostRanks, ...] = ()
    shell: RemoteShell = field(default_factory=RemoteShell)
    directory: str = ""
    interface: str = ""
    ports: tuple[int, int] | None = None
    files: Path | None = None
    threads: int | None = None
    bind: bool = False
    notes: tuple[str, ...] = ()
    stdin: bytes = field(default=b"", repr=False)
    open_files: int | None = None
    patience: Patience = field(default_factory=Patience)


def make_plan(
    request: RunRequest,
    environment: Mapping[str, str],
    own_names: Collection[str] = (),
    machine: Machine | None = None,
) -> LaunchPlan:
    """Checks a request and returns the plan for it.

    Args:
        request: What the user asked for.
        environment: The environment of the launcher.
        own_names: How this host calls itself, beside the loopback names.
        machine: What the ranks share. Defaults to this host.

    Raises:
        UsageError: If any part of the request is wrong.
    """
    patience = Patience.of(request.time_limits, environment)
    hosts, shell = _hosts_here(request, environment, patience)
    size = _job_size(request.num_ranks, hosts)
    remote = not all(is_local(host.name, own_names) for host in hosts)
    rank_environment = _forwarded(environment) if remote else dict(environment)
    if contract.RANK in environment:
        # A rank that starts a job of its own, which is another program.
        for name in auto_options.OPTIONS:
            rank_environment.pop(name, None)
    for text in request.variables:
        name, value = parse_variable(text)
        rank_environment[name] = value
    ports = _ports(request.port_range)
    if request.port_range is not None and remote:
        rank_environment[contract.PORT_RANGE] = request.port_range
    if request.start_timeout is not None:
        rank_environment[contract.START_TIMEOUT] = request.start_timeout
    if request.log_level is not None:
        rank_environment[contract.LOG_LEVEL] = request.log_level
    if request.tls is not None:
        rank_environment[contract.TLS] = "1" if request.tls else "0"
    rank_environment.update(_autotune(request))
    rank_environment.update(_auto(request, rank_environment))
    timeline = _timeline(request.timeline, rank_environment)
    rank_environment.pop(contract.TIMELINE, None)
    if timeline is not None:
        rank_environment[contract.TIMELINE] = str(timeline)
    if not rank_environment.get(tensorflow_lines.LEVEL):
        rank_environment[tensorflow_lines.LEVEL] = str(tensorflow_lines.QUIET)
    # Of the launcher alone.
    for name in (contract.METRICS_TOKEN, *LIMITS):
        rank_environment.pop(name, None)
    check_settings(rank_environment)
    output = _output(request)
    key = new_key()
    source = _log_source(request, rank_environment, key)
    flights = rank_environment.setdefault(
        contract.FLIGHT_DIRECTORY, str(_flight_directory(output.directory))
    )
    plan = LaunchPlan(
        size=size,
        command=request.command,
        environment=rank_environment,
        output=output,
        key=key,
        log_source=source,
        prefix_timestamp=request.prefix_timestamp,
        stdout=_stdout(request.stdout, rank_environment),
        fold=request.fold,
        flight_directory=(
            None if flights == contract.NO_FLIGHT_DIRECTORY else Path(flights)
        ),
        timeline=timeline,
        metrics=_metrics(request),
        patience=patience,
    )
    if remote:
        places = place_ranks(hosts, size, own_names)
        return _on_hosts(replace(plan, ports=ports), request, places, shell)
    return _on_this_host(plan, request, machine or Machine.here())


def _on_this_host(
    plan: LaunchPlan, request: RunRequest, machine: Machine
) -> LaunchPlan:
    share = share_cores(
        plan.size,
        machine,
        plan.environment,
        threads=request.threads,
        bind=request.bind,
    )
    check_command(plan.command, plan.environment.get("PATH"))
    return replace(
        plan,
        environment={**plan.environment, **share.variables},
        cpus=share.cpus,
        notes=share.notes,
    )


def _on_hosts(
    plan: LaunchPlan,
    request: RunRequest,
    places: tuple[HostRanks, ...],
    shell: RemoteShell,
) -> LaunchPlan:
    """What is to be checked there, the agents check."""
    if not plan.command:
        check_command(plan.command, None)
    return replace(
        plan,
        places=places,
        shell=shell,
        directory=working_directory(),
        interface=request.interface or "",
        threads=request.threads,
        bind=request.bind,
    )


def _shell(request: RunRequest, patience: Patience) -> RemoteShell:
    try:
        command = shlex.split(request.rsh or "")
    except ValueError as error:
        raise UsageError(f"--rsh {request.rsh!r}: {error}") from None
    return RemoteShell(
        command=tuple(command),
        port=request.ssh_port,
        identity=request.ssh_identity,
        connect_timeout=math.ceil(patience.connect_timeout),
    )


def plan_of_hosts(
    request: RunRequest,
    own_names: Collection[str],
    environment: Mapping[str, str],
) -> LaunchPlan:
    """Returns a plan that runs nothing, to look at hosts.

    Raises:
        UsageError: If the hosts are malformed.
    """
    hosts = _hosts(request)
    size = sum(host.slots for host in hosts)
    patience = Patience.of(request.time_limits, environment)
    return LaunchPlan(
        size=size,
        command=("true",),
        environment={},
        places=place_ranks(hosts, size, own_names),
        shell=_shell(request, patience),
        patience=patience,
        directory=working_directory(),
        interface=request.interface or "",
        ports=_ports(request.port_range),
    )


# Of this host or of this login, and nothing to ranks elsewhere.
_NOT_FORWARDED = re.compile(
    r"HOME|HOSTNAME|LOGNAME|MAIL|OLDPWD|PWD|SHELL|SHLVL|TMPDIR|USER|_|DISPLAY"
    r"|XAUTHORITY|(SSH|XDG|DBUS|SLURM|SLURMD|PMI|PMIX|PRTE|OMPI)_.*"
)


def _forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not _NOT_FORWARDED.fullmatch(name)
    }


def _autotune(request: RunRequest) -> dict[str, str]:
    """Returns the variables of the options of `--autotune`."""
    log = request.autotune_log
    given = {
        contract.AUTOTUNE: "1" if request.autotune else None,
        # A rank may run elsewhere.
        contract.AUTOTUNE_LOG: log and str(absolute(log)),
        contract.AUTOTUNE_WARMUP_SAMPLES: request.autotune_warmup_samples,
        contract.AUTOTUNE_STEPS_PER_SAMPLE: request.autotune_steps_per_sample,
        contract.AUTOTUNE_MAX_SAMPLES: request.autotune_max_samples,
    }
    return {name: value for name, value in given.items() if value is not None}


_HASH_SEED = "PYTHONHASHSEED"


def _auto(
    request: RunRequest, environment: Mapping[str, str]
) -> dict[str, str]:
    """Returns the variables of `--auto` and of its options."""
    options = {
        "--batch": (contract.AUTO_BATCH, request.auto_batch),
        "--scale-learning-rate": (
            contract.AUTO_LEARNING_RATE,
            request.auto_learning_rate,
        ),
        "--warmup-epochs": (
            contract.AUTO_WARMUP_EPOCHS,
            request.auto_warmup_epochs,
        ),
    }
    given = {} if request.auto is None else {contract.AUTO: request.auto}
    is_on = auto_options.is_on({**environment, **given})
    for option, (name, text) in options.items():
        if text is None:
            continue
        if not is_on:
            raise UsageError(f"{option} {text} is for --auto: add --auto")
        given[name] = text
    if is_on and not environment.get(_HASH_SEED):
        # Or the words of a set, and what a program numbers in the order of
        # them, would come in another order on each rank.
        given[_HASH_SEED] = "0"
    return given


def _stdout(option: str | None, environment: Mapping[str, str]) -> str:
    """Returns of which ranks standard output is shown."""
    if option is None:
        # As of the one process for which the program was written.
        return RANK_0 if auto_options.is_on(environment) else ALL
    if option not in (RANK_0, ALL):
        raise UsageError(f"--stdout {option!r}: expected {RANK_0} or {ALL}")
    return option


def _timeline(
    option: str | None, environment: Mapping[str, str]
) -> Path | None:
    """Returns the file of the timeline; None if there is to be none."""
    text = environment.get(contract.TIMELINE) if option is None else option
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
    return path


def _metrics(request: RunRequest) -> tuple[str, int] | None:
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


def _output(request: RunRequest) -> OutputFiles:
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


def _log_source(
    request: RunRequest, environment: dict[str, str], key: str
) -> LogSource | None:
    """Returns who says what the launcher says, and tells the ranks.

    Args:
        request: What the user asked for.
        environment: That of the ranks.
        key: The secret of the job.
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


def _ports(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    ports = interfaces.port_range(text)
    if ports is None or ports[0] < 1024:
        raise UsageError(
            f"--port-range {text!r}: expected two ports from 1024 to 65535, for"
            " example 30000-30099"
        )
    return ports[0], ports[-1]


def _flight_directory(output_dir: Path | None) -> Path:
    if output_dir is not None:
        return OutputFiles.flights(absolute(output_dir))
    # Nobody can guess it, so nobody can have prepared it; and there is none
    # until a rank has something to tell.
    name = f"keras-ring-flight-{secrets.token_hex(8)}"
    return temporary_directory() / name


def _hosts(request: RunRequest) -> tuple[Host, ...]:
    if request.hosts is not None and request.hostfile is not None:
        raise UsageError("give the hosts by -H or by --hostfile, not by both")
    if request.hostfile is not None:
        return read_hostfile(request.hostfile)
    return parse_hosts(request.hosts) if request.hosts is not None else ()


def _hosts_here(
    request: RunRequest, environment: Mapping[str, str], patience: Patience
) -> tuple[tuple[Host, ...], RemoteShell]:
    """Returns the hosts, and how they are reached.

    Those of a Slurm allocation, where the user names none.
    """
    hosts = _hosts(request)
    shell = _shell(request, patience)
    if hosts or not request.in_allocation:
        return hosts, shell
    hosts = allocated_hosts(environment)
    slots = sum(host.slots for host in hosts)
    if hosts and request.num_ranks is not None and request.num_ranks > slots:
        raise UsageError(
            f"-np {request.num_ranks} asks for more ranks than the Slurm"
            f" allocation has tasks, {slots} on {len(hosts)} nodes; ask Slurm"
            " for more, or run on this host alone by -H"
            f" localhost:{request.num_ranks}"
        )
    return hosts, shell if request.rsh else step_shell()


def _job_size(asked: int | None, hosts: Sequence[Host]) -> int:
    size = asked
    if hosts:
        slots = sum(host.slots for host in hosts)
        size = slots if size is None else size
        if size > slots:
            raise UsageError(
                f"-np {size} asks for more ranks than the {slots} of the hosts"
            )
    if size is None:
        raise UsageError("say how many ranks to start, for example -np 2")
    if not 1 <= size <= _MAX_RANKS:
        raise UsageError(
            f"-np {size}: expected a number of ranks from 1 to {_MAX_RANKS}"
        )
    return size


def parse_variable(text: str) -> tuple[str, str]:
    """Splits `NAME=value` as given to `--env`.

    Raises:
        UsageError: If it is malformed, or names a variable that the launcher
            itself sets.
    """
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or "\0" in value:
        raise UsageError(f"--env: {text!r} is not of the form NAME=value")
    if name in contract.LAUNCHER_OWNED:
        raise UsageError(f"--env: {name} is set by keras-ring itself")
    return name, value


def check_command(command: Sequence[str], search_path: str | None) -> None:
    """Raises a UsageError when a command cannot be run.

    Args:
        command: Program and arguments.
        search_path: The ranks' `PATH`.
    """
    if not command:
        raise UsageError(
            "no command to run; add one, for example: -- python train.py"
        )
    program = command[0]
    if shutil.which(program, path=search_path) is None:
        if program.endswith(".py") and Path(program).is_file():
            raise UsageError(
                f"{program} is not an executable program;"
                f" try: -- python {program}"
            )
        raise UsageError(f"program not found: {program!r}")
    script = python_script(command)
    if (
        script is not None
        and script.endswith(".py")
        and not Path(script).is_file()
    ):
        raise UsageError(f"script not found: {script!r}")
