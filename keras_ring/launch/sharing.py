"""Divides the cores of a host among the ranks on it."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from keras_ring.launch.usage import UsageError
from keras_ring.protocol import cores, nvidia, processors
from keras_ring.protocol.processors import Node

# Without these, the framework of each rank would start a thread for each core.
# JAX is told by keras_ring.jax, from the last one.
_INTRA = "TF_NUM_INTRAOP_THREADS"
_INTER = "TF_NUM_INTEROP_THREADS"
_OPENMP = "OMP_NUM_THREADS"
_MAX_THREADS = 4096
# Number of ranks of a node whose processors are listed.
_MAX_SHOWN = 8


@dataclass(frozen=True)
class Machine:
    """The cores and processors that the ranks of a host share.

    Args:
        cores: Integer, the number of cores that they may use together.
        nodes: Tuple of `Node`s with the processors on which they may run.
        gpus: Integer, the number of GPUs that they may use.
    """

    cores: int
    nodes: tuple[Node, ...]
    gpus: int = 0

    @classmethod
    def here(cls) -> "Machine":
        """Returns what this process and its children may use."""
        gpus = min(len(nvidia.visible(os.environ)), len(nvidia.models()))
        return cls(cores.available(), processors.here(), gpus)

    def num_ranks(self) -> tuple[int, str]:
        """Returns a number of ranks for this host, and why it is that one."""
        if self.gpus:
            return self.gpus, "one for each GPU"
        return self.cores, "one for each core"


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of a host that each rank gets.

    Args:
        variables: Environment variables to set for all ranks.
        cpus: Tuple of the processors that each rank may run on; empty for no
            limit.
        notes: Tuple of lines for the user.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    cpus: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()


def thread_variables(count: int) -> dict[str, str]:
    """Returns the variables that give a rank `count` threads."""
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
    """Returns the threads and the processors of each rank.

    Variables that the user has set are not changed.

    Args:
        num_ranks: Integer, the number of ranks on this host.
        machine: `Machine` that they share.
        environment: The environment variables of the ranks.
        threads: Integer, the number of threads of each rank, or `0` for as many
            as its libraries choose. Defaults to its share of the cores, or to
            `0` if there is one rank.
        bind: Boolean, whether each rank runs on processors of its own only.

    Returns:
        The `Share`.

    Raises:
        UsageError: If `threads` is out of range, or there are too few
            processors for `bind`.
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
        notes = (_shared_text(num_ranks, machine.cores, count, variables),)
    return Share(
        variables=variables, cpus=bound.cpus, notes=notes + bound.notes
    )


def _shared_text(
    num_ranks: int, num_cores: int, count: int, variables: Mapping[str, str]
) -> str:
    """Returns a line that tells how many threads each rank has."""
    if len(variables) == len(thread_variables(count)):
        what = f"each computes with {_counted(count, 'thread')}"
    else:
        # The user has set the others.
        what = "set " + ", ".join(
            f"{name}={text}" for name, text in variables.items()
        )
    return (
        f"{_counted(num_cores, 'core')} for {num_ranks} ranks: {what} "
        "(--threads changes it)"
    )


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)


def _bind(num_ranks: int, machine: Machine) -> Share:
    """Returns a share in which each rank has processors of its own."""
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
    """Returns a line that tells the processors of the local ranks."""
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
