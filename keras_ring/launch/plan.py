"""Makes a checked plan from a request of the user, and starts nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from keras_ring.launch.directories import working_directory
from keras_ring.launch.hosts import Host, HostRanks, assign_ranks, is_local
from keras_ring.launch.job import new_key
from keras_ring.launch.output_files import OutputFiles
from keras_ring.launch.patience import Patience
from keras_ring.launch.plan_elastic import (
    check_elastic,
    first_size,
    least_slots,
    max_size,
    min_size,
    reset_limit,
)
from keras_ring.launch.plan_environment import rank_environment
from keras_ring.launch.plan_hosts import (
    discovered_hosts,
    hosts_of_job,
    job_size,
    named_hosts,
    port_range,
    remote_shell,
)
from keras_ring.launch.plan_outputs import (
    ALL,
    flight_directory,
    launcher_log_source,
    metrics_address,
    output_files,
    shown_stdout,
    timeline_file,
)
from keras_ring.launch.rank_command import check_command
from keras_ring.launch.remote_shell import RemoteShell
from keras_ring.launch.request import RunRequest
from keras_ring.launch.sharing import Machine, share_cores
from keras_ring.protocol.log_source import LogSource


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A job as it is to be started.

    Args:
        size: Integer, the number of ranks.
        command: Tuple of strings, the program and its arguments, the same for
            every rank.
        environment: Environment variables to which those of each rank are
            added.
        output: `OutputFiles` that keep each rank's output.
        prefix_timestamp: Boolean, whether each line of output starts with the
            time.
        stdout: String, the ranks whose standard output is shown: `ALL` or
            `RANK_0`.
        log_source: `LogSource` of the launcher's own lines, if lines are JSON
            objects. `None` if they are text.
        key: String, the secret of the job.
        flight_directory: Path of the directory of flight records. `None` if the
            ranks write none.
        timeline: Path of the file made of the ranks' timelines. `None` for no
            timeline.
        metrics: Tuple of the host and the port on which metrics are served.
            `None` for no metrics.
        fold: Boolean, whether lines that ranks print alike to standard error
            are shown once.
        cpus: Tuple of the processors that each rank may run on; empty for no
            limit. On several hosts, each agent divides its own processors.
        host_ranks: Tuple of `HostRanks`, the hosts of the job. Empty if all
            ranks are on this host.
        shell: `RemoteShell` that reaches the hosts.
        directory: String, the working directory of the ranks on the hosts.
        interface: String, the networks that ranks use; `""` for any.
        ports: Tuple of the first and the last port on which ranks listen.
        files: Path of a directory whose files are copied to all hosts. The word
            `FILES` in the command is replaced by the directory of the copies,
            and results are written to the original.
        threads: Integer, the value of `--threads`, for the agents.
        bind: Boolean, whether `--bind` was given, for the agents.
        notes: Tuple of lines that are printed before the start.
        stdin: Bytes that each rank reads from standard input.
        open_files: Integer, the soft limit of open files of ranks on this host.
            `None` for that of this process.
        min_size: Integer, the fewest ranks with which the job goes on after it
            has lost some. `None` if it ends when it loses any.
        max_size: Integer, the most ranks of such a job: others are started
            while it has fewer. `None` if no others are started.
        reset_limit: Integer, how often the ranks of such a job may change.
            `None` for no limit.
        host_discovery_script: String, the program that tells the hosts of such
            a job; `""` if they are those of `host_ranks`.
        own_names: Tuple of names of this host, in addition to the loopback
            names.
        patience: `Patience`, the time limits for ranks and hosts.
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
    host_ranks: tuple[HostRanks, ...] = ()
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
    min_size: int | None = None
    max_size: int | None = None
    reset_limit: int | None = None
    host_discovery_script: str = ""
    own_names: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)


def make_plan(
    request: RunRequest,
    environment: Mapping[str, str],
    own_names: Collection[str] = (),
    machine: Machine | None = None,
) -> LaunchPlan:
    """Checks a request and returns the plan for it.

    Args:
        request: `RunRequest` of the user.
        environment: The environment variables of the launcher.
        own_names: Names of this host, in addition to the loopback names.
        machine: `Machine` that the ranks share. Defaults to this host.

    Raises:
        UsageError: If any part of the request is wrong.
    """
    check_elastic(request)
    patience = Patience.of(request.time_limits, environment)
    if request.host_discovery_script:
        hosts = discovered_hosts(request, least_slots(request), patience)
        shell = remote_shell(request, patience)
    else:
        hosts, shell = hosts_of_job(request, environment, patience)
    machine = machine or Machine.here()
    asked, notes = _asked_size(request, hosts, machine)
    size = job_size(asked, hosts)
    remote = bool(request.host_discovery_script) or not all(
        is_local(host.name, own_names) for host in hosts
    )
    ports = port_range(request.port_range)
    of_ranks = rank_environment(request, environment, remote=remote)
    key = new_key()
    output = output_files(request)
    # These three set variables of the ranks.
    source = launcher_log_source(request, of_ranks, key)
    flights = flight_directory(output, of_ranks)
    timeline = timeline_file(request.timeline, of_ranks)
    plan = LaunchPlan(
        size=size,
        command=request.command,
        environment=of_ranks,
        output=output,
        key=key,
        log_source=source,
        prefix_timestamp=request.prefix_timestamp,
        stdout=shown_stdout(request.stdout, of_ranks),
        fold=request.fold,
        flight_directory=flights,
        timeline=timeline,
        metrics=metrics_address(request),
        min_size=min_size(request, size),
        max_size=max_size(request, size, hosts if remote else ()),
        reset_limit=reset_limit(request),
        patience=patience,
        notes=notes,
    )
    if remote:
        host_ranks = assign_ranks(hosts, size, own_names, most=plan.max_size)
        plan = replace(plan, ports=ports, own_names=tuple(own_names))
        return _on_hosts(plan, request, host_ranks, shell)
    return _on_this_host(plan, request, machine)


def _asked_size(
    request: RunRequest, hosts: Sequence[Host], machine: Machine
) -> tuple[int | None, tuple[str, ...]]:
    """Returns the number of ranks that is asked for, and lines about it."""
    asked = request.num_ranks
    if asked is None and request.host_discovery_script:
        return first_size(request, hosts), ()
    if not isinstance(asked, str):
        return asked, ()
    if hosts:
        return None, ()  # as many as they have slots
    size, why = machine.num_ranks()
    return size, (f"-np {asked}: {size} rank{'s' * (size != 1)}, {why}",)


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
        notes=plan.notes + share.notes,
    )


def _on_hosts(
    plan: LaunchPlan,
    request: RunRequest,
    host_ranks: tuple[HostRanks, ...],
    shell: RemoteShell,
) -> LaunchPlan:
    """Returns the plan for several hosts; agents check the command there."""
    if not plan.command:
        check_command(plan.command, None)
    return replace(
        plan,
        host_ranks=host_ranks,
        shell=shell,
        directory=working_directory(),
        interface=request.interface or "",
        threads=request.threads,
        bind=request.bind,
        host_discovery_script=request.host_discovery_script or "",
    )


def plan_of_hosts(
    request: RunRequest,
    own_names: Collection[str],
    environment: Mapping[str, str],
) -> LaunchPlan:
    """Returns a plan without a job, to check hosts.

    Raises:
        UsageError: If the hosts are malformed.
    """
    hosts = named_hosts(request)
    size = sum(host.slots for host in hosts)
    patience = Patience.of(request.time_limits, environment)
    return LaunchPlan(
        size=size,
        command=("true",),
        environment={},
        host_ranks=assign_ranks(hosts, size, own_names),
        shell=remote_shell(request, patience),
        patience=patience,
        directory=working_directory(),
        interface=request.interface or "",
        ports=port_range(request.port_range),
    )
