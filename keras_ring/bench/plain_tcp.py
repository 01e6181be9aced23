"""Measures plain TCP between hosts, all at once and in both directions.

Each host sends to the next one and receives from the one before it, as fast as
one connection in each direction allows. A collective has to move its bytes in
the same way; this is the speed without keras_ring.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from keras_ring.protocol import interfaces

# Sizes to try: small chunks stay in caches, large chunks need fewer calls.
CHUNKS = (1 << 17, 1 << 19, 1 << 20)
_TIMEOUT = 5.0
# Share of the time that does not count: TCP has to find the rate of the link.
_UNCOUNTED = 0.3


@dataclass(frozen=True)
class Endpoint:
    """Address of a host.

    Args:
        addresses: Addresses of the host, the best one first.
        port: Integer, the port, the same on each address.
    """

    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class Stream:
    """Rates of a host that sends and receives at the same time.

    Args:
        gb_s: GB received per second.
        cpu_s_per_gb: CPU seconds of this host for both directions, per GB
            received.
    """

    gb_s: float
    cpu_s_per_gb: float


class Neighbours:
    """One host's connections to the next one and from the one before it.

    Args:
        token: Secret bytes, the same on all hosts, that identify connections
            of this measurement.
    """

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._open: list[socket.socket] = []

    def listen(self, wanted: str = "", ports: range | None = None) -> Endpoint:
        """Opens a port, and returns its address for the host before this one.

        Args:
            wanted: String, the addresses of this host to choose from, as for
                `interfaces.choose`; the first one is used. Defaults to all of
                its addresses.
            ports: Ports to choose from. Defaults to any port.

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
            following: Endpoint of the next host.

        Raises:
            OSError: If the next host cannot be reached, or the one before does
                not connect.
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

        All hosts have to call it together. It ends the connections.

        Args:
            chunk: Integer, the bytes of one call of the kernel.
            seconds: Float, the duration of the measurement.

        Raises:
            OSError: If a connection breaks, or no data arrive.
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
            # Connections with another token are closed.
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
        # The receiver reports why no more data arrive.
        with contextlib.suppress(OSError):
            while time.perf_counter() < end:
                self._to.sendall(data)
            self._to.shutdown(socket.SHUT_WR)
        return time.thread_time() - used

    def _receive(
        self, chunk: int, counted_from: float, end: float
    ) -> tuple[float, int]:
        """Returns GB/s in the counted time, and the number of all bytes."""
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
    """Sets time limits in the kernel, which saves a poll for each call."""
    connection.settimeout(None)
    limit = struct.pack("ll", int(_TIMEOUT), 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, limit)
