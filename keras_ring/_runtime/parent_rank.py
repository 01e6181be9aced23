"""Tells a rank from the processes that it has started.

A process inherits the environment of the one that started it, and so all that
makes a process a rank. `multiprocessing` by "spawn" or "forkserver" even runs
the first lines of the program again, which call `init()`. So a rank leaves a
mark in its environment, with its own process id: whoever finds it with another
id was started by that rank, and is none itself.

The mark counts as long as the variables are as they were which placed the
rank: where they have changed, somebody has placed the process anew.

There is no mark before the rank has been through `init()`. What it starts then
may well be the rank, as where a program trains in a process of its own; but not
where `multiprocessing` runs the first lines of the program again: the rank runs
them itself.
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

from keras_ring._launch_protocol import contract

# What places a process, in our own words.
_PLACING = (
    contract.RANK,
    contract.SIZE,
    contract.RENDEZVOUS,
    contract.GENERATION,
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank stands, as `topology()` tells."""

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
        pid: Its process id.
        place: Where it stands.
    """

    pid: int
    place: Place


def mark(environment: MutableMapping[str, str], topology: Any) -> None:
    """Marks this process as a rank, for the processes that it starts.

    Not if it is the only one: then each of them may be a job of its own.

    Args:
        environment: Of this process, `os.environ`.
        topology: Where it stands.
    """
    if topology.size == 1:
        environment.pop(contract.PARENT_RANK, None)
        return
    place = Place(
        **{each.name: getattr(topology, each.name) for each in fields(Place)}
    )
    environment[contract.PARENT_RANK] = json.dumps(
        {
            "process": _own_process(),
            "placing": _placing(environment),
            "place": asdict(place),
        }
    )


def found(environment: Mapping[str, str]) -> ParentRank | None:
    """Returns the rank that has started this process.

    Args:
        environment: Of this process.

    Returns:
        None if none has, also if this process is the one that was marked, or
        was placed anew.
    """
    marked = _read(environment)
    if marked is None or marked["placing"] != _placing(environment):
        return None
    return ParentRank(pid=marked["process"][0], place=Place(**marked["place"]))


def runs_first_lines() -> bool:
    """Whether `multiprocessing` runs the first lines of a program here again.

    It does so in each process that it starts by "spawn" or "forkserver", under
    a name that it has for them.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        is_module = frame.f_code.co_name == "<module>"
        if is_module and frame.f_globals.get("__name__") == "__mp_main__":
            return True
        frame = frame.f_back
    return False


def leave(environment: MutableMapping[str, str]) -> None:
    """Drops what a rank was told, in a process that is a job of its own.

    That is one which a rank has started with `KERAS_RING_SIZE=1`: neither its
    end nor its timeline is that of the rank.

    Args:
        environment: Of this process, `os.environ`.
    """
    if _read(environment) is None or environment.get(contract.SIZE) != "1":
        return
    for name in (*contract.LAUNCHER_OWNED, contract.TIMELINE):
        if name != contract.SIZE:
            environment.pop(name, None)


def _read(environment: Mapping[str, str]) -> Any:
    """Returns the mark of another process, None if there is none."""
    text = environment.get(contract.PARENT_RANK)
    if not text:
        return None
    marked = json.loads(text)
    return None if marked["process"] == _own_process() else marked


def _placing(environment: Mapping[str, str]) -> list[str]:
    return [environment.get(name, "") for name in _PLACING]


def _own_process() -> list[int]:
    """Returns the id of this process, and when it was started.

    A process id is used again, and another namespace has others.
    """
    try:
        text = Path("/proc/self/stat").read_bytes()
    except OSError:
        return [os.getpid(), 0]
    # The name, in parentheses, may itself hold spaces and parentheses.
    return [os.getpid(), int(text[text.rindex(b")") + 1 :].split()[19])]
