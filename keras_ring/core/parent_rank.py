"""Distinguishes a rank from the processes that it has started.

A process inherits the environment of its parent, with all variables of a rank.
`multiprocessing` with "spawn" or "forkserver" even runs the first lines of the
program again, which may call `init()`. So a rank leaves a mark with its own
process id in its environment. A process that finds a mark with another id was
started by that rank, and is not a rank itself.

The mark is valid while the variables that place the rank are unchanged. If they
have changed, another launcher has placed the process.

There is no mark until `init()` of the rank has returned. A process that is
started before may itself be the rank, if a program trains in a child process.
It is not the rank if `multiprocessing` runs the first lines of the program
again, because the rank runs them itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any

from keras_ring.protocol import contract

# Our variables that place a process in a job.
_PLACING = (
    contract.RANK,
    contract.SIZE,
    contract.RENDEZVOUS,
    contract.GENERATION,
)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The ranks and sizes of a process, as `topology()` returns them."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    homogeneous: bool


@dataclass(frozen=True, kw_only=True)
class ParentRank:
    """The rank that has started this process.

    Args:
        pid: Integer, its process id.
        topology: `Topology` of that rank.
    """

    pid: int
    topology: Topology


def mark(environment: MutableMapping[str, str], topology: Any) -> None:
    """Marks this process as a rank, for the processes that it starts.

    The only rank of a job leaves no mark: each process that it starts may be a
    job of its own.

    Args:
        environment: The environment of this process, `os.environ`, which is
            changed.
        topology: The topology of the job.
    """
    if topology.size == 1:
        environment.pop(contract.PARENT_RANK, None)
        return
    marked = Topology(
        **{each.name: getattr(topology, each.name) for each in fields(Topology)}
    )
    environment[contract.PARENT_RANK] = json.dumps(
        {
            "process": _own_process(),
            "placing": _placing(environment),
            "topology": asdict(marked),
        }
    )


def found(environment: Mapping[str, str]) -> ParentRank | None:
    """Returns the rank that has started this process.

    Args:
        environment: The environment variables of this process.

    Returns:
        The `ParentRank`. `None` if no rank has started this process, if this
        process is the marked rank itself, or if it was placed again.
    """
    marked = _read(environment)
    if marked is None or marked["placing"] != _placing(environment):
        return None
    return ParentRank(
        pid=marked["process"][0], topology=Topology(**marked["topology"])
    )


def runs_first_lines() -> bool:
    """Returns whether `multiprocessing` runs a program's first lines again.

    It does so in each process that it starts by "spawn" or "forkserver", under
    the module name `__mp_main__`.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        is_module = frame.f_code.co_name == "<module>"
        if is_module and frame.f_globals.get("__name__") == "__mp_main__":
            return True
        frame = frame.f_back
    return False


def leave(environment: MutableMapping[str, str]) -> None:
    """Removes the variables of a parent rank in a job of its own.

    Such a process was started by a rank with `KERAS_RING_SIZE=1`. Neither its
    end nor its timeline is that of the rank.

    Args:
        environment: The environment of this process, `os.environ`, which is
            changed.
    """
    if _read(environment) is None or environment.get(contract.SIZE) != "1":
        return
    for name in (*contract.LAUNCHER_OWNED, contract.TIMELINE):
        if name != contract.SIZE:
            environment.pop(name, None)


def _read(environment: Mapping[str, str]) -> Any:
    """Returns the mark of another process, or `None`."""
    text = environment.get(contract.PARENT_RANK)
    if not text:
        return None
    marked = json.loads(text)
    return None if marked["process"] == _own_process() else marked


def _placing(environment: Mapping[str, str]) -> list[str]:
    return [environment.get(name, "") for name in _PLACING]


def _own_process() -> list[int]:
    """Returns the id of this process and its start time.

    The time is needed because process ids are reused, and differ between
    namespaces.
    """
    try:
        text = Path("/proc/self/stat").read_bytes()
    except OSError:
        return [os.getpid(), 0]
    # The name, in parentheses, may itself contain spaces and parentheses.
    return [os.getpid(), int(text[text.rindex(b")") + 1 :].split()[19])]
