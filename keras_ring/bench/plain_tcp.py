"""What plain TCP carries between hosts, all of them at once and both ways.

Each host sends to the next one and receives from the one before it, as fast as
one connection of each goes. A collective has to carry its bytes so, too; this
is the same without anything that is ours.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from keras_ring._launch_protocol import interfaces

# Of these one is best or another: short ones stay in caches, long ones take
# fewer calls.
CHUNKS = (1 << 17, 1 << 19, 1 << 20)
_TIMEOUT = 5.0
# At first a connection is slow: it has to find out what the way can carry.
_UNCOUNTED = 0.3


@dataclass(frozen=True)
class Endpoint:
    """Where a host is reached.

    Args:
        addresses: The best first.
        port: The same at each of them.
    """

    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class Stream:
    """What a host has sent and received at the same time.

    Args:
        gb_s: GB per second that came in.
        cpu_s_per_gb: CPU seconds of this host, for both ways, per GB that came
            in.
    """

    gb_s: float
    cpu_s_per_gb: float


class Neighbours:
    """One host's connections to the next one and from the one before it.

    Args:
        token: What shows that a connection belongs to this measurement: the
            same bytes on all hosts, and secret.
    """

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._open: list[socket.socket] = []

    def listen(self, wanted: str = "", ports: range | None = None) -> Endpoint:
        """Opens a port; returns where the host before this one finds it.

        Args:
            wanted: The addresses at which this host is to be reached, as
                `interfaces.choose` takes them; the first is taken. Defaults
                to all that it has.
            ports: Those to choose from. Defaults to any.

        Raises:
            OSError: If none of the ports is free.
            ConfigurationError: If there is no such address.
        """
        own = interfaces.choose(wanted, interfaces.own_addresses())
        addresses = tuple(each.address for each in own)
        if wanted:
            addresses = addresses[:1]
        here = addresses[0] if wanted else ""
        self._listener = interfaces.listen(here, ports, 8)
        self._open.append(self._listener)
        return Endpoint(addresses, int(self._listener.getsockname()[1]))

    def connect(self, following: Endpoint) -> None:
        """Connects to the next host, and waits for the one before this one.

        Args:
            following: Of the next host.

        Raises:
            OSError: If the one is not reached or the other does not come.
        """
        self._to = _reach(following)
        self._open.append(self._to)
        self._to.sendall(self._token)
        self._from = self._accept()
        self._open.append(self._from)
        for each in (self._to, self._from):
            _block(each)

    def stream(self, chunk: int, seconds: float = 0.6) -> Stream:
        """Sends and receives at the same time.

        All hosts have to begin it together. It ends the connections.

        Args:
            chunk: Bytes that go to and come from the kernel at a time.
            seconds: How long.

        Raises:
            OSError: If a connection breaks, or nothing moves.
        """
        began = time.perf_counter()
        end = began + seconds
        counted_from = began + _UNCOUNTED * seconds
        try:
            with ThreadPoolExecutor(1) as other:
                sender = other.submit(self._send, chunk, end)
                used = time.thread_time()
                gb_s, received = self._receive(chunk, counted_from, end)
                used = time.thread_time() - used + sender.result()
            return Stream(gb_s, used / received * 1e9)
        finally:
            for _ in range(2):
                self._open.pop().close()

    def close(self) -> None:
        """Ends all connections."""
        for each in self._open:
            each.close()

    def _accept(self) -> socket.socket:
        end = time.monotonic() + _TIMEOUT
        while (left := end - time.monotonic()) > 0:
            self._listener.settimeout(left)
            peer, _ = self._listener.accept()
            peer.settimeout(left)
            # Whoever else comes is a stranger.
            if hmac.compare_digest(self._greeting(peer), self._token):
                return peer
            peer.close()
        raise TimeoutError("the host before this one does not come")

    def _greeting(self, peer: socket.socket) -> bytes:
        data = b""
        missing = len(self._token)
        with contextlib.suppress(OSError):
            while missing and (more := peer.recv(missing)):
                data += more
                missing -= len(more)
        return data

    def _send(self, chunk: int, end: float) -> float:
        data = bytes(chunk)
        used = time.thread_time()
        # The one who receives tells why it gets no more.
        with contextlib.suppress(OSError):
            while time.perf_counter() < end:
                self._to.sendall(data)
            self._to.shutdown(socket.SHUT_WR)
        return time.thread_time() - used

    def _receive(
        self, chunk: int, counted_from: float, end: float
    ) -> tuple[float, int]:
        """Returns GB/s while it counted, and all bytes."""
        buffer = bytearray(chunk)
        counted = total = 0
        first = last = 0.0
        while got := self._from.recv_into(buffer):
            now = time.perf_counter()
            total += got
            if not first and now >= counted_from:
                first = now
            elif first and now <= end:
                counted += got
                last = now
        if last <= first:
            raise ConnectionError("the host before this one sent too little")
        return counted / (last - first) / 1e9, total


def _reach(endpoint: Endpoint) -> socket.socket:
    problems = []
    for address in endpoint.addresses:
        try:
            return socket.create_connection(
                (address, endpoint.port), timeout=_TIMEOUT
            )
        except OSError as error:
            problems.append(f"{address} port {endpoint.port}: {error}")
    raise ConnectionError("; ".join(problems) or "it has no address")


def _block(connection: socket.socket) -> None:
    """Lets the kernel keep the time limit, which saves a poll per call."""
    connection.settimeout(None)
    limit = struct.pack("ll", int(_TIMEOUT), 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, limit)
