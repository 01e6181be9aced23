"""How fast two hosts reach each other: round trip and rate of one connection.

One side serves for a while; it talks only to whoever has the token, and keeps
nothing of what it gets.
"""

import contextlib
import hmac
import socket
import statistics
import threading
import time
from dataclasses import dataclass

from keras_ring._launch_protocol import interfaces

_TOKEN_BYTES = 32
_PING, _STREAM = b"p", b"s"
_ROUNDS = 20
_STREAM_SECONDS = 0.3
_CHUNK = 1 << 18
_TIMEOUT = 3.0


@dataclass(frozen=True)
class LinkSpeed:
    """What one connection between two hosts does.

    Args:
        microseconds: Median round trip of one byte.
        megabytes: Per second, in one direction.
    """

    microseconds: float
    megabytes: float


def serve(token: str) -> int:
    """Answers measurements, in threads of its own, as long as this process.

    Args:
        token: 64 hexadecimal characters that those who measure must send.

    Returns:
        The port.
    """
    listener = interfaces.listen("", None, 64)
    threading.Thread(
        target=_accept, args=(listener, bytes.fromhex(token)), daemon=True
    ).start()
    return int(listener.getsockname()[1])


def _accept(listener: socket.socket, token: bytes) -> None:
    with contextlib.suppress(OSError), listener:
        while True:
            peer, _ = listener.accept()
            threading.Thread(
                target=_answer, args=(peer, token), daemon=True
            ).start()


def _answer(peer: socket.socket, token: bytes) -> None:
    with contextlib.suppress(OSError), peer:
        peer.settimeout(_TIMEOUT)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not hmac.compare_digest(_receive(peer, _TOKEN_BYTES), token):
            return
        if peer.recv(1) == _PING:
            while byte := peer.recv(1):
                peer.sendall(byte)
            return
        total = 0
        while data := peer.recv(_CHUNK):
            total += len(data)
        peer.sendall(str(total).encode())


def _receive(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := peer.recv(count - len(data))):
        data += more
    return data


def measure(address: str, port: int, token: str) -> LinkSpeed:
    """Measures the connection to a host that serves.

    Raises:
        OSError: If it is not reached, or does not answer.
    """
    with _connect(address, port, token, _PING) as peer:
        times = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            peer.sendall(b".")
            if not peer.recv(1):
                raise ConnectionError("it does not answer")
            times.append(time.perf_counter() - began)
    with _connect(address, port, token, _STREAM) as peer:
        chunk = bytes(_CHUNK)
        began = time.perf_counter()
        while time.perf_counter() < began + _STREAM_SECONDS:
            peer.sendall(chunk)
        peer.shutdown(socket.SHUT_WR)
        total = int(peer.recv(32) or b"0")
        seconds = time.perf_counter() - began
    return LinkSpeed(1e6 * statistics.median(times), total / 1e6 / seconds)


def _connect(address: str, port: int, token: str, what: bytes) -> socket.socket:
    peer = socket.create_connection((address, port), timeout=_TIMEOUT)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(bytes.fromhex(token) + what)
    return peer
