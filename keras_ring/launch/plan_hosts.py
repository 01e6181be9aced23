"""The hosts of a plan, the number of ranks, and the way to reach the hosts."""

import math
import shlex
from collections.abc import Mapping, Sequence

from keras_ring.launch.allocation import allocated_hosts, step_shell
from keras_ring.launch.host_discovery import HostDiscovery
from keras_ring.launch.hosts import Host, parse_hosts, read_hostfile
from keras_ring.launch.patience import Patience
from keras_ring.launch.remote_shell import RemoteShell
from keras_ring.launch.request import RunRequest
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import interfaces

MAX_RANKS = 4096


def hosts_of_job(
    request: RunRequest, environment: Mapping[str, str], patience: Patience
) -> tuple[tuple[Host, ...], RemoteShell]:
    """Returns the hosts of a job, and the command that reaches them.

    If the user names no hosts, they are those of a Slurm allocation.

    Args:
        request: `RunRequest` of the user.
        environment: The environment variables of the launcher.
        patience: `Patience`, the time limits for hosts.

    Returns:
        Tuple of the hosts, which is empty if all ranks are on this host, and
        the `RemoteShell`.

    Raises:
        UsageError: If the hosts are malformed, or the allocation is too small.
    """
    hosts = named_hosts(request)
    shell = remote_shell(request, patience)
    if hosts or not request.in_allocation:
        return hosts, shell
    hosts = allocated_hosts(environment)
    slots = sum(host.slots for host in hosts)
    asked = request.num_ranks
    if hosts and isinstance(asked, int) and asked > slots:
        raise UsageError(
            f"-np {asked} asks for more ranks than the Slurm"
            f" allocation has tasks, {slots} on {len(hosts)} nodes; ask Slurm"
            " for more, or run on this host alone by -H"
            f" localhost:{asked}"
        )
    return hosts, shell if request.rsh else step_shell()


def job_size(asked: int | None, hosts: Sequence[Host]) -> int:
    """Returns the number of ranks.

    Args:
        asked: Integer, the value of `-np`, or `None`.
        hosts: Sequence of `Host`s, which is empty if all ranks are on this
            host.

    Raises:
        UsageError: If the number is missing or out of range, or the hosts have
            too few slots.
    """
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
    if not 1 <= size <= MAX_RANKS:
        raise UsageError(
            f"-np {size}: expected a number of ranks from 1 to {MAX_RANKS}"
        )
    return size


def named_hosts(request: RunRequest) -> tuple[Host, ...]:
    """Returns the hosts that the user names, or `()`.

    Raises:
        UsageError: If they are malformed.
    """
    if request.hosts is not None and request.hostfile is not None:
        raise UsageError("give the hosts by -H or by --hostfile, not by both")
    if request.hostfile is not None:
        return read_hostfile(request.hostfile)
    return parse_hosts(request.hosts) if request.hosts is not None else ()


def discovered_hosts(
    request: RunRequest, slots: int, patience: Patience
) -> tuple[Host, ...]:
    """Returns the hosts that `--host-discovery-script` tells.

    Args:
        request: `RunRequest` of the user.
        slots: Integer, the number of slots without which a job does not start.
        patience: `Patience`, the time limits for hosts.

    Raises:
        UsageError: If it does not tell of enough of them in time, or there are
            hosts by another option.
    """
    if named_hosts(request):
        raise UsageError(
            "give the hosts by -H or --hostfile, or by --host-discovery-script"
        )
    discovery = HostDiscovery(request.host_discovery_script or "")
    return discovery.wait_for(slots, patience.elastic_timeout)


def remote_shell(request: RunRequest, patience: Patience) -> RemoteShell:
    """Returns the command that reaches the hosts of a request.

    Raises:
        UsageError: If `--rsh` is malformed.
    """
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


def port_range(text: str | None) -> tuple[int, int] | None:
    """Returns the first and the last port of `--port-range`, if given.

    Raises:
        UsageError: If it is malformed.
    """
    if text is None:
        return None
    ports = interfaces.port_range(text)
    if ports is None or ports[0] < 1024:
        raise UsageError(
            f"--port-range {text!r}: expected two ports from 1024 to 65535, for"
            " example 30000-30099"
        )
    return ports[0], ports[-1]
