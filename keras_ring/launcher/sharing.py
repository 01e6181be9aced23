"""Divides the cores of a host among the ranks on it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from keras_ring._launch_protocol import cores
from keras_ring.launcher.usage import UsageError

# Each rank's TensorFlow would start as many threads as there are cores.
_INTRA = "TF_NUM_INTRAOP_THREADS"
_INTER = "TF_NUM_INTEROP_THREADS"
_OPENMP = "OMP_NUM_THREADS"
_MAX_THREADS = 4096


@dataclass(frozen=True)
class Machine:
    """What the ranks of a host share.

    Args:
        cores: How many cores they may use together.
        cpus: The processors on which the kernel lets them run, those that
            share the most beside each other.
    """

    cores: int
    cpus: tuple[int, ...]

    @classmethod
    def here(cls) -> "Machine":
        """Returns this host, as far as this process may use it."""
        cpus = cores.near_each_other(list(os.sched_getaffinity(0)))
        return cls(cores.available(), tuple(cpus))


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
    cpus: tuple[tuple[int, ...], ...] = ()
    if bind:
        if num_ranks > len(machine.cpus):
            raise UsageError(
                f"--bind: {num_ranks} ranks cannot have processors of their"
                f" own, for there are {len(machine.cpus)}"
            )
        cpus = tuple(cores.divided(machine.cpus, num_ranks))
    if threads == 0 or (threads is None and num_ranks == 1):
        return Share(cpus=cpus)
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
    return Share(variables=variables, cpus=cpus, notes=notes)
