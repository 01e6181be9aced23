"""The network addresses of this host, and those that are asked for."""

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
        interface: Its name, such as `"eth0"`.
        address: Of IPv4 or IPv6, in numbers.
    """

    interface: str
    address: str


def own_addresses() -> list[Address]:
    """Returns the addresses at which other hosts may reach this one.

    Those of interfaces that are up, IPv4 first; no loopback address and none
    that is good for one link alone (`fe80::`).
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
    """Returns the addresses that fit what a user asks for.

    Args:
        wanted: Names of interfaces, networks (`10.0.0.0/8`) or addresses,
            separated by commas, the best first; `""` for all.
        addresses: Those that there are.
        setting: Where the user has said it.

    Raises:
        ConfigurationError: If there is none.
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
    """Returns the ports of `"30000-30099"`; None if it is none such."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal()):
        return None
    ports = range(int(low), int(high) + 1)
    return ports if ports and ports[0] > 0 and ports[-1] < 65536 else None


def listen(address: str, ports: range | None, backlog: int) -> socket.socket:
    """Returns a socket that listens.

    Args:
        address: Where; `""` for all addresses of this host.
        ports: The ports to choose from. Defaults to those of the kernel.
        backlog: Connections that may wait.

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
    """Whether somebody takes a connection there within these seconds."""
    try:
        socket.create_connection((address, port), timeout=timeout).close()
    except OSError:
        return False
    return True


def is_full(listener: socket.socket) -> bool:
    """Whether no more connections may wait for this socket to accept them.

    Then the kernel drops what others send to it, as a firewall would.
    """
    # Of a socket that listens, these two count what waits, and what may.
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    waiting, limit = struct.unpack_from("=II", info, 24)
    return bool(waiting > limit)


def drop_waiting(listener: socket.socket) -> None:
    """Takes the connections that wait, and closes them.

    Those of other hosts that have tried whether they come here.
    """
    listener.setblocking(False)
    try:
        while True:
            listener.accept()[0].close()
    except BlockingIOError:
        listener.setblocking(True)
