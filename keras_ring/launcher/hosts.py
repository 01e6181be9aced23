"""Reads `-H host:slots,...`."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from keras_ring.launcher.usage import UsageError

# A name, an IPv4 address, or an IPv6 address in brackets; then the slots.
_ENTRY = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,6}))?")
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))


@dataclass(frozen=True)
class Host:
    """A host and the number of ranks that it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Returns the hosts of a list such as `"localhost:4,node7:2"`.

    Args:
        text: Names separated by commas, each with `:slots`; without it, one.

    Raises:
        UsageError: If an entry is malformed or offers no slot.
    """
    hosts = []
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise UsageError(
                f"-H: {entry!r} is not of the form host:slots,"
                " for example localhost:4"
            )
        slots = int(match[2]) if match[2] is not None else 1
        if slots < 1:
            raise UsageError(f"-H: {entry!r} offers no slot for a rank")
        hosts.append(Host(match[1], slots))
    return tuple(hosts)


def check_local(hosts: Collection[Host], own_names: Collection[str]) -> None:
    """Raises a UsageError when a host is another than this one.

    Args:
        hosts: The hosts asked for.
        own_names: How this host calls itself, beside the loopback names.
    """
    for host in hosts:
        if host.name not in _LOCAL_NAMES and host.name not in own_names:
            raise UsageError(
                f"-H: {host.name} is not this host, and remote hosts are not"
                " supported yet; use localhost"
            )
