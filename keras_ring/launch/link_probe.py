"""The speed of a link between two hosts: round trip and rate of a connection.

One side serves until it is told to stop. It answers only clients that send the
token, and discards the data that it receives.
"""

import contextlib
import errno
import hmac
import socket
import statistics
import threading
import time
from dataclasses import dataclass

from keras_ring.launch.strangers import ConnectionSlots, TimelyReader

BACKLOG = 64
_TOKEN_BYTES = 32
_PING, _STREAM = b"p", b"s"
_ROUNDS = 20
_STREAM_SECONDS = 0.3
_CHUNK = 1 << 18
_MAX_CONNECTIONS = 16
# Errors of `accept` after which the listener goes on.
_PASSING = frozenset(
    (
        *(errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    )
)
# Seconds to wait after such an error, until descriptors or memory may be free.
_REST = 0.1


@dataclass(frozen=True)
class LinkSpeed:
    """The speed of one connection between two hosts.

    Args:
        microseconds: Float, the median round trip of one byte.
        megabytes: Float, the megabytes per second in one direction.
    """

    microseconds: float
    megabytes: float


class LinkServer:
    """A server that answers measurements in its own threads until closed.

    Args:
        listener: Listening socket, which is closed with this object.
        token: String of 64 hexadecimal characters that clients must send.
        timeout: Float, the seconds for a token to arrive, and for each read or
            write after it.
    """

    def __init__(
        self, listener: socket.socket, token: str, timeout: float
    ) -> None:
        self.port = int(listener.getsockname()[1])
        self._listener = listener
        self._token = bytes.fromhex(token)
        self._timeout = timeout
        self._slots = ConnectionSlots(_MAX_CONNECTIONS)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread that accepts connections, and closes the socket."""
        # `accept` in the thread raises an error then.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    return
                time.sleep(_REST)
                continue
            if not self._slots.take(peer):
                peer.close()
                continue
            try:
                threading.Thread(
                    target=self._serve, args=(peer,), daemon=True
                ).start()
            except RuntimeError:
                # The system cannot start another thread.
                self._leave(peer)

    def _serve(self, peer: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                self._answer(peer)
        finally:
            self._leave(peer)

    def _leave(self, peer: socket.socket) -> None:
        self._slots.keep(peer)
        peer.close()
        self._slots.leave()

    def _answer(self, peer: socket.socket) -> None:
        token = _receive(peer, _TOKEN_BYTES, self._timeout)
        if not hmac.compare_digest(token, self._token):
            return
        self._slots.keep(peer)
        peer.settimeout(self._timeout)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if peer.recv(1) == _PING:
            while byte := peer.recv(1):
                peer.sendall(byte)
            return
        total = 0
        while data := peer.recv(_CHUNK):
            total += len(data)
        peer.sendall(str(total).encode())


def _receive(peer: socket.socket, count: int, timeout: float) -> bytes:
    """Returns `count` bytes, or fewer at the end.

    Raises:
        TimeoutError: If they do not all arrive within `timeout` seconds.
    """
    reader = TimelyReader(peer, timeout)
    data = b""
    while len(data) < count and (more := reader.read(count - len(data))):
        data += more
    return data


def measure(address: str, port: int, token: str, timeout: float) -> LinkSpeed:
    """Measures the connection to a host with a `LinkServer`.

    Args:
        address: String, the address of the host.
        port: Integer, the port of the server.
        token: String, the token of the server.
        timeout: Float, the seconds for each answer.

    Returns:
        The `LinkSpeed`.

    Raises:
        OSError: If the server cannot be reached, or does not answer.
    """
    with _connect(address, port, token, _PING, timeout) as peer:
        times = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            peer.sendall(b".")
            if not peer.recv(1):
                raise ConnectionError("it does not answer")
            times.append(time.perf_counter() - began)
    with _connect(address, port, token, _STREAM, timeout) as peer:
        chunk = bytes(_CHUNK)
        began = time.perf_counter()
        while time.perf_counter() < began + _STREAM_SECONDS:
            peer.sendall(chunk)
        peer.shutdown(socket.SHUT_WR)
        total = int(peer.recv(32) or b"0")
        seconds = time.perf_counter() - began
    return LinkSpeed(1e6 * statistics.median(times), total / 1e6 / seconds)


def _connect(
    address: str, port: int, token: str, what: bytes, timeout: float
) -> socket.socket:
    peer = socket.create_connection((address, port), timeout=timeout)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(bytes.fromhex(token) + what)
    return peer
