"""Divides the cores of a host among the ranks on it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from keras_ring._launch_protocol import cores, processors
from keras_ring._launch_protocol.processors import Node
from keras_ring.launcher.usage import UsageError

# Each rank's TensorFlow would start as many threads as there are cores.
_INTRA = "TF_NUM_INTRAOP_THREADS"
_INTER = "TF_NUM_INTEROP_THREADS"
_OPENMP = "OMP_NUM_THREADS"
_MAX_THREADS = 4096
# Ranks of a node whose processors are named.
_MAX_SHOWN = 8


@dataclass(frozen=True)
class Machine:
    """What the ranks of a host share.

    Args:
        cores: How many cores they may use together.
        nodes: The processors on which the kernel lets them run.
    """

    cores: int
    nodes: tuple[Node, ...]

    @classmethod
    def here(cls) -> "Machine":
        """Returns this host, as far as this process may use it."""
        return cls(cores.available(), processors.here())


@dataclass(frozen=True, kw_only=True)
class Share:
    """What each rank gets.

    Args:
        variables: To be set for all ranks.
        cpus: By rank, the processors that it may run on; empty for no limit.
        notes: What the user is told.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    cpus: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()


def thread_variables(count: int) -> dict[str, str]:
    """Returns the variables that give a rank so many threads."""
    wanted = {_INTRA: count, _INTER: max(2, count), _OPENMP: count}
    return {name: str(number) for name, number in wanted.items()}


def share_cores(
    num_ranks: int,
    machine: Machine,
    environment: Mapping[str, str],
    *,
    threads: int | None = None,
    bind: bool = False,
) -> Share:
    """Says how many threads each rank starts, and where they run.

    What the user has set himself is left as it is.

    Args:
        num_ranks: Integer, the ranks on this host.
        machine: What they share.
        environment: The environment of the ranks.
        threads: Of each rank; 0 for as many as its libraries choose. Defaults
            to its part of the cores; where there is one rank, as with 0.
        bind: Whether each rank is kept on processors of its own.

    Raises:
        UsageError: If the numbers make no sense.
    """
    if threads is not None and not 0 <= threads <= _MAX_THREADS:
        raise UsageError(
            f"--threads {threads}: expected a number from 0 to {_MAX_THREADS}"
        )
    bound = _bind(num_ranks, machine) if bind else Share()
    if threads == 0 or (threads is None and num_ranks == 1):
        return bound
    count = threads or max(1, machine.cores // num_ranks)
    variables = {
        name: text
        for name, text in thread_variables(count).items()
        if not environment.get(name)
    }
    notes: tuple[str, ...] = ()
    if threads is None and variables:
        plural = "s" if machine.cores > 1 else ""
        notes = (
            f"{machine.cores} core{plural} for {num_ranks} ranks: set "
            + ", ".join(f"{name}={text}" for name, text in variables.items())
            + " (--threads changes it)",
        )
    return Share(
        variables=variables, cpus=bound.cpus, notes=notes + bound.notes
    )


def _bind(num_ranks: int, machine: Machine) -> Share:
    """Gives each rank processors of its own."""
    num_cpus = sum(len(node.cpus) for node in machine.nodes)
    if num_ranks > num_cpus:
        raise UsageError(
            f"--bind: {num_ranks} ranks cannot have processors of their"
            f" own, for there are {num_cpus}"
        )
    shares = processors.divided(machine.nodes, num_ranks)
    return Share(
        cpus=tuple(cpus for _, cpus in shares),
        notes=(_bound_text(shares, several=len(machine.nodes) > 1),),
    )


def _bound_text(
    shares: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], *, several: bool
) -> str:
    """Says which local ranks are where."""
    parts = []
    for numbers, group in itertools.groupby(
        enumerate(shares), key=lambda item: item[1][0]
    ):
        members = list(group)
        ranks = [rank for rank, _ in members]
        plural = "s" if len(ranks) > 1 else ""
        where = "; ".join(
            processors.list_text(cpus) for _, (_, cpus) in members[:_MAX_SHOWN]
        )
        if len(members) > _MAX_SHOWN:
            where += "; ..."
        nodes = ""
        if several:
            word = "nodes" if len(numbers) > 1 else "node"
            nodes = f" of {word} {processors.list_text(numbers)}"
        parts.append(
            f"local rank{plural} {processors.list_text(ranks)} on processors"
            f"{nodes}: {where}"
        )
    return "--bind: " + ", ".join(parts)
