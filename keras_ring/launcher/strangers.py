"""What those who connect to a port may take before they are known.

A port that others reach is open to strangers, who may send nothing, or one byte
at a time, over as many connections as they like. Each connection has a place,
of which there are few. Where all are taken, a newcomer gets that of the oldest
stranger: who knows the token says so at once.
"""

import contextlib
import io
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Seconds for a connection that has lost its place to leave it.
_LEAVING_TIME = 1.0


class Places:
    """The connections that are served at one time; thread-safe.

    Args:
        limit: How many they are.
    """

    def __init__(self, limit: int) -> None:
        self._free = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        # The oldest first.
        self._strangers: dict[socket.socket, None] = {}

    def take(self, peer: socket.socket) -> bool:
        """Takes a place for a connection, by ending another one if need be.

        Returns:
            Whether there is one. Without it the connection is to be closed.
        """
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            # At most as many as there are places are served, whatever comes.
            if not self._free.acquire(timeout=_LEAVING_TIME):
                return False
        with self._lock:
            self._strangers[peer] = None
        return True

    def keep(self, peer: socket.socket) -> None:
        """Ends a connection for no newcomer any more.

        It has shown the token, or is about to be closed.
        """
        with self._lock:
            self._strangers.pop(peer, None)

    def leave(self) -> None:
        """Gives a place back, after its connection was closed."""
        self._free.release()

    def _end_oldest(self) -> None:
        with self._lock:
            peer = next(iter(self._strangers), None)
            if peer is None:
                return
            del self._strangers[peer]
            # Whoever serves it, in another thread, finds the end of its input.
            # Under the lock, for it must not be closed meanwhile.
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)


class TimelyReader(io.RawIOBase):
    """Reads from a connection as long as a time lasts, however it comes.

    A timeout of a socket is that of each call: by one byte at a time a peer
    would take as long as it likes.

    Args:
        peer: The connection; its timeout is changed.
        seconds: From now on.
    """

    def __init__(self, peer: socket.socket, seconds: float) -> None:
        self._peer = peer
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Reads what there is.

        Raises:
            TimeoutError: If the time is over.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        self._peer.settimeout(left)
        return self._peer.recv_into(buffer)
