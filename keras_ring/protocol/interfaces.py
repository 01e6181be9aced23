"""The network addresses of this host, and their selection."""

import ipaddress
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from keras_ring import errors


@dataclass(frozen=True)
class Address:
    """An address of an interface.

    Args:
        interface: String, the name of the interface, such as `"eth0"`.
        address: String, a numeric address of IPv4 or IPv6.
    """

    interface: str
    address: str


def own_addresses() -> list[Address]:
    """Returns the addresses at which other hosts may reach this one.

    These are the addresses of interfaces that are up, IPv4 first, without
    loopback and link-local addresses (`fe80::`).
    """
    up = {name for name, at in psutil.net_if_stats().items() if at.isup}
    found = [
        Address(name, each.address)
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name in up and each.family in (socket.AF_INET, socket.AF_INET6)
    ]
    usable = [each for each in found if _leads_here(each.address)]
    return sorted(usable, key=lambda each: ":" in each.address)


def _leads_here(address: str) -> bool:
    number = ipaddress.ip_address(address.partition("%")[0])
    return not (number.is_loopback or number.is_link_local)


def choose(
    wanted: str, addresses: Iterable[Address], *, setting: str = "--interface"
) -> list[Address]:
    """Returns the addresses that match a setting of the user.

    Args:
        wanted: String, names of interfaces, networks (`10.0.0.0/8`) or
            addresses, separated by commas, the best first; `""` for all.
        addresses: The addresses to choose from.
        setting: String, the name of the setting, for the error.

    Raises:
        ConfigurationError: If no address matches.
    """
    known = list(addresses)
    if not wanted:
        return known
    chosen: list[Address] = []
    for word in wanted.split(","):
        chosen += [
            each
            for each in known
            if _fits(each, word.strip()) and each not in chosen
        ]
    if not chosen:
        there = ", ".join(f"{each.interface} {each.address}" for each in known)
        raise errors.ConfigurationError(
            f"{setting} {wanted}: {socket.gethostname()} has none such;"
            f" it has {there or 'no address'}"
        )
    return chosen


def _fits(address: Address, word: str) -> bool:
    if word == address.interface:
        return True
    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False
    number = ipaddress.ip_address(address.address.partition("%")[0])
    return number in network


def port_range(text: str) -> range | None:
    """Returns the ports of a range such as `"30000-30099"`, or `None`."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal()):
        return None
    ports = range(int(low), int(high) + 1)
    return ports if ports and ports[0] > 0 and ports[-1] < 65536 else None


def listen(address: str, ports: range | None, backlog: int) -> socket.socket:
    """Returns a listening socket.

    Args:
        address: String, the address to listen on; `""` for all addresses of
            this host.
        ports: Range of ports to try. `None` for a port that the kernel chooses.
        backlog: Integer, the number of connections that may wait.

    Raises:
        OSError: If none of the ports is free.
    """
    both = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
    for port in ports or (0,):
        try:
            return socket.create_server(
                (address, port),
                family=family,
                backlog=backlog,
                dualstack_ipv6=both,
            )
        except OSError as error:
            failure = error
    raise failure


def answers(address: str, port: int, timeout: float) -> bool:
    """Returns whether a connection succeeds within `timeout` seconds."""
    try:
        socket.create_connection((address, port), timeout=timeout).close()
    except OSError:
        return False
    return True


def is_full(listener: socket.socket) -> bool:
    """Returns whether the queue of a listening socket is full.

    In that case the kernel drops further connections, as a firewall would.
    """
    # For a listening socket, these fields are the number of connections that
    # wait, and its limit.
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    waiting, limit = struct.unpack_from("=II", info, 24)
    return bool(waiting > limit)


def drop_waiting(listener: socket.socket) -> None:
    """Accepts and closes the connections that wait.

    They come from other hosts that have tried to reach this one.
    """
    listener.setblocking(False)
    try:
        while True:
            listener.accept()[0].close()
    except BlockingIOError:
        listener.setblocking(True)
