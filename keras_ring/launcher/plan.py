"""From what the user asked for to a checked plan; nothing is started here."""

import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from keras_ring._launch_protocol import contract, interfaces
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
from keras_ring.launcher.remote_shell import RemoteShell
from keras_ring.launcher.settings import check_settings
from keras_ring.launcher.sharing import Machine, share_cores
from keras_ring.launcher.usage import UsageError

_MAX_RANKS = 4096
# A word of a command: the directory of the plan's files.
FILES = "{files}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PYTHON = re.compile(r"python[0-9.]*t?")
# Options of the python program whose value is the next word.
_PYTHON_VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A job as it is to be started.

    Args:
        size: Number of ranks.
        command: Program and arguments, the same for every rank.
        environment: What each rank's environment is built on.
        output_dir: Directory for each rank's output; None for none.
        prefix_timestamp: Whether each line of output starts with the time.
        flight_directory: Where the ranks leave flight records; None if they
            are to leave none.
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
        failure_grace: Seconds that the other ranks get after one has failed.
        term_grace: Seconds between SIGTERM and SIGKILL after that.
        signal_grace: Seconds between a forwarded signal and SIGKILL.
    """

    size: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    output_dir: Path | None = None
    prefix_timestamp: bool = False
    flight_directory: Path | None = None
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
    failure_grace: float = 2.0
    term_grace: float = 2.0
    signal_grace: float = 10.0


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What the user typed after `keras-ring run`.

    Args:
        command: Program and arguments.
        num_ranks: Value of `-np`.
        hosts: Value of `-H`.
        hostfile: Value of `--hostfile`.
        ssh_port: Value of `--ssh-port`.
        ssh_identity: Value of `--ssh-identity`.
        rsh: Value of `--rsh`.
        interface: Value of `--interface`.
        port_range: Value of `--port-range`.
        output_dir: Value of `--output-dir`.
        prefix_timestamp: Whether `--prefix-timestamp` was given.
        variables: Values of `--env`.
        start_timeout: Value of `--start-timeout`.
        log_level: Value of `--log-level`.
        tls: Whether `--tls` or `--no-tls` was given; None for neither.
        autotune: Whether `--autotune` was given.
        autotune_log: Value of `--autotune-log-file`.
        autotune_warmup_samples: Value of `--autotune-warmup-samples`.
        autotune_steps_per_sample: Value of `--autotune-steps-per-sample`.
        autotune_max_samples: Value of `--autotune-bayes-opt-max-samples`.
        threads: Value of `--threads`; None if it was not given.
        bind: Whether `--bind` was given.
        fold: Whether `--no-fold` was not given.
        in_allocation: Whether the nodes of a Slurm allocation are the hosts,
            where no others are given.
    """

    command: tuple[str, ...]
    num_ranks: int | None = None
    hosts: str | None = None
    hostfile: str | None = None
    ssh_port: int | None = None
    ssh_identity: str | None = None
    rsh: str | None = None
    interface: str | None = None
    port_range: str | None = None
    output_dir: str | None = None
    prefix_timestamp: bool = False
    variables: tuple[str, ...] = ()
    start_timeout: str | None = None
    log_level: str | None = None
    tls: bool | None = None
    autotune: bool = False
    autotune_log: str | None = None
    autotune_warmup_samples: str | None = None
    autotune_steps_per_sample: str | None = None
    autotune_max_samples: str | None = None
    threads: int | None = None
    bind: bool = False
    fold: bool = True
    in_allocation: bool = False


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
    hosts, shell = _hosts_here(request, environment)
    size = _job_size(request.num_ranks, hosts)
    remote = not all(is_local(host.name, own_names) for host in hosts)
    rank_environment = _forwarded(environment) if remote else dict(environment)
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
    if not rank_environment.get(tensorflow_lines.LEVEL):
        rank_environment[tensorflow_lines.LEVEL] = str(tensorflow_lines.QUIET)
    check_settings(rank_environment)
    output_dir = Path(request.output_dir) if request.output_dir else None
    flights = rank_environment.setdefault(
        contract.FLIGHT_DIRECTORY, str(_flight_directory(output_dir))
    )
    plan = LaunchPlan(
        size=size,
        command=request.command,
        environment=rank_environment,
        output_dir=output_dir,
        prefix_timestamp=request.prefix_timestamp,
        fold=request.fold,
        flight_directory=(
            None if flights == contract.NO_FLIGHT_DIRECTORY else Path(flights)
        ),
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
        directory=os.getcwd(),
        interface=request.interface or "",
        threads=request.threads,
        bind=request.bind,
    )


def _shell(request: RunRequest) -> RemoteShell:
    try:
        command = shlex.split(request.rsh or "")
    except ValueError as error:
        raise UsageError(f"--rsh {request.rsh!r}: {error}") from None
    return RemoteShell(
        command=tuple(command),
        port=request.ssh_port,
        identity=request.ssh_identity,
    )


def plan_of_hosts(
    request: RunRequest, own_names: Collection[str]
) -> LaunchPlan:
    """Returns a plan that runs nothing, to look at hosts.

    Raises:
        UsageError: If the hosts are malformed.
    """
    hosts = _hosts(request)
    size = sum(host.slots for host in hosts)
    return LaunchPlan(
        size=size,
        command=("true",),
        environment={},
        places=place_ranks(hosts, size, own_names),
        shell=_shell(request),
        directory=os.getcwd(),
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
        contract.AUTOTUNE_LOG: log and os.path.abspath(log),
        contract.AUTOTUNE_WARMUP_SAMPLES: request.autotune_warmup_samples,
        contract.AUTOTUNE_STEPS_PER_SAMPLE: request.autotune_steps_per_sample,
        contract.AUTOTUNE_MAX_SAMPLES: request.autotune_max_samples,
    }
    return {name: value for name, value in given.items() if value is not None}


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
        return output_dir.absolute() / "flight"
    # Nobody can guess it, so nobody can have prepared it; and there is none
    # until a rank has something to tell.
    name = f"keras-ring-flight-{secrets.token_hex(8)}"
    return Path(tempfile.gettempdir()) / name


def _hosts(request: RunRequest) -> tuple[Host, ...]:
    if request.hosts is not None and request.hostfile is not None:
        raise UsageError("give the hosts by -H or by --hostfile, not by both")
    if request.hostfile is not None:
        return read_hostfile(request.hostfile)
    return parse_hosts(request.hosts) if request.hosts is not None else ()


def _hosts_here(
    request: RunRequest, environment: Mapping[str, str]
) -> tuple[tuple[Host, ...], RemoteShell]:
    """Returns the hosts, and how they are reached.

    Those of a Slurm allocation, where the user names none.
    """
    hosts = _hosts(request)
    shell = _shell(request)
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


def python_script(command: Sequence[str]) -> str | None:
    """Returns the script that a command hands to Python, if it is such."""
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return None
    words = iter(command[1:])
    for word in words:
        if word in _PYTHON_VALUE_OPTIONS:
            next(words, None)
        elif word == "-" or re.match(r"-[A-Za-z]*[cm]", word):
            return None
        elif not word.startswith("-"):
            return word
    return None
