"""The processors of a host by their nodes, and their division among ranks.

All facts of a host are read below one folder, so that a test can simulate any
host.
"""

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_SYSTEM = Path("/sys")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Node:
    """Processors with the same distance to the same memory (a NUMA node).

    Args:
        number: Integer, the number that the kernel gives.
        cores: Tuple of the usable processors of each physical core, which are
            its hyper-threads. Adjacent cores share the most.
    """

    number: int
    cores: tuple[tuple[int, ...], ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        """All processors, with those of a core next to each other."""
        return tuple(cpu for core in self.cores for cpu in core)


def nodes(allowed: Iterable[int], system: Path = _SYSTEM) -> tuple[Node, ...]:
    """Returns the nodes that have usable processors.

    Nodes that have only memory are left out. If the kernel lists no nodes,
    there is one node.

    Args:
        allowed: Iterable of integers, the numbers of the usable processors.
        system: Path of the folder in which the kernel describes the host.
    """
    left = set(allowed)
    found = []
    for folder in (system / "devices/system/node").glob("node[0-9]*"):
        cpus = left & set(_read_list(folder / "cpulist"))
        if cpus:
            number = int(folder.name.removeprefix("node"))
            found.append(Node(number, _cores(cpus, system)))
            left -= cpus
    if left:
        found.append(Node(0, _cores(left, system)))
    return tuple(sorted(found, key=lambda node: node.number))


def here() -> tuple[Node, ...]:
    """Returns the nodes of this host that this process may use."""
    return nodes(os.sched_getaffinity(0))


def node_of_interface(name: str, system: Path = _SYSTEM) -> int | None:
    """Returns the node to which a network interface is connected.

    Args:
        name: String, the name of the interface.
        system: Path of the folder in which the kernel describes the host.

    Returns:
        Integer, the number of the node. `None` if there is none or it is
        unknown.
    """
    try:
        text = (system / "class/net" / name / "device/numa_node").read_text()
        number = int(text)
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def divided(
    host: Sequence[Node], num_ranks: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Divides the processors of a host among its ranks, in their order.

    Each rank is on one node, or has whole nodes if there are more nodes than
    ranks. It has whole cores, unless there are more ranks than cores.

    Args:
        host: Sequence of the host's `Node`s, with at least as many processors
            as ranks.
        num_ranks: Integer, the number of ranks.

    Returns:
        List of tuples, for each rank the numbers of its nodes and its
        processors.
    """
    if num_ranks < len(host):
        return [
            (
                tuple(node.number for node in part),
                tuple(cpu for node in part for cpu in node.cpus),
            )
            for part in _parts(host, num_ranks)
        ]
    # The units of the division: no unit is given to two ranks.
    units = [node.cores for node in host]
    if num_ranks > sum(map(len, units)):
        units = [tuple((cpu,) for cpu in node.cpus) for node in host]
    shares: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for node, own, count in zip(
        host, units, _apportion(num_ranks, list(map(len, units))), strict=True
    ):
        for part in _parts(own, count):
            cpus = tuple(cpu for unit in part for cpu in unit)
            shares.append(((node.number,), cpus))
    return shares


def list_text(cpus: Iterable[int]) -> str:
    """Returns a list of processors in the kernel's form, such as `"0-3,8"`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in runs
    )


def _cores(cpus: set[int], system: Path) -> tuple[tuple[int, ...], ...]:
    """Groups processors by their cores, in the order of sockets and cores."""
    by_core: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(cpus):
        folder = system / f"devices/system/cpu/cpu{cpu}/topology"
        socket = _read_number(folder / "physical_package_id", 0)
        # If the core is unknown, each processor is a core of its own.
        core = _read_number(folder / "core_id", cpu)
        by_core.setdefault((socket, core), []).append(cpu)
    return tuple(tuple(by_core[key]) for key in sorted(by_core))


def _apportion(num_ranks: int, units: Sequence[int]) -> list[int]:
    """Returns the number of ranks of each node, in proportion to its units."""
    total = sum(units)
    counts = [num_ranks * each // total for each in units]
    by_rest = sorted(
        range(len(units)),
        key=lambda node: (-(num_ranks * units[node] % total), node),
    )
    for node in by_rest[: num_ranks - sum(counts)]:
        counts[node] += 1
    return counts


def _parts(items: Sequence[_Item], count: int) -> list[Sequence[_Item]]:
    """Cuts a sequence into parts; the first parts may have one item more."""
    if count == 0:
        return []
    least, more = divmod(len(items), count)
    ends = [part * least + min(part, more) for part in range(count + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]


def _read_number(path: Path, default: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return default


def _read_list(path: Path) -> list[int]:
    """Returns the numbers in a file such as `"0-3,8"`, or `[]` on an error."""
    numbers: list[int] = []
    try:
        text = path.read_text().strip()
        for run in filter(None, text.split(",")):
            first, _, last = run.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    except (OSError, ValueError):
        return []
    return numbers
