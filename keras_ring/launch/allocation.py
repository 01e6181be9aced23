"""The hosts of a Slurm allocation, for a launcher that runs in one."""

import re
import subprocess
from collections.abc import Mapping

from keras_ring.launch.hosts import Host
from keras_ring.launch.remote_shell import RemoteShell
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import contract

_NODES = "SLURM_JOB_NODELIST"
_TASKS = "SLURM_TASKS_PER_NODE"
# `2(x3),1`: three nodes with 2, one with 1.
_COUNT = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")
_ANSWERS_WITHIN = 20.0
# A step that shares the node with other steps, on all of its processors.
_STEP = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none")


def allocated_hosts(environment: Mapping[str, str]) -> tuple[Host, ...]:
    """Returns the nodes of the allocation that this process is in.

    Args:
        environment: The environment variables of this process.

    Returns:
        Tuple of `Host`s, with the number of tasks that was requested for each.
        It is `()` outside of an allocation, in an allocation of one node, in a
        rank, and in one of several tasks of a step.

    Raises:
        UsageError: If Slurm does not tell the names of the nodes.
    """
    expression = environment.get(_NODES, "")
    if not expression or environment.get("SLURM_JOB_NUM_NODES") == "1":
        return ()
    # True in one of several tasks of srun; a rank may start its own job, too.
    several = environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    if several or environment.get(contract.SIZE):
        return ()
    names = _expanded(expression)
    counts = _counts(environment.get(_TASKS, ""))
    if len(counts) != len(names):
        counts = [1] * len(names)
    return tuple(map(Host, names, counts))


def step_shell() -> RemoteShell:
    """Returns the command that reaches nodes of an allocation without ssh."""
    return RemoteShell(command=(*_STEP, "--nodelist"), takes_words=True)


def _expanded(expression: str) -> list[str]:
    """Returns the names in an expression such as `node[1-3,7]`."""
    command = ["scontrol", "show", "hostnames", expression]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{_NODES} is {expression!r}, and scontrol does not say which hosts"
            f" these are: {error}; give them by -H"
        ) from None
    if done.returncode != 0:
        raise UsageError(
            f"{_NODES} is {expression!r}, and scontrol does not say which hosts"
            f" these are: {done.stderr.strip()}; give them by -H"
        )
    return done.stdout.split()


def _counts(text: str) -> list[int]:
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
