"""Limits of connections before they have sent the token.

A port that other hosts reach is open to unauthenticated peers, called
strangers. They may open any number of connections, and send nothing or one byte
at a time. So connections have a limited number of slots. If all slots are
taken, a new connection gets the slot of the oldest stranger, because peers that
know the token send it at once.
"""

import contextlib
import io
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Seconds until a connection that was ended has left its slot.
_LEAVING_TIME = 1.0


class ConnectionSlots:
    """The connections that are served at one time. It is thread-safe.

    Args:
        limit: Integer, the number of slots.
    """

    def __init__(self, limit: int) -> None:
        self._free = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        # The oldest first.
        self._strangers: dict[socket.socket, None] = {}

    def take(self, peer: socket.socket) -> bool:
        """Takes a slot for a connection, and may end another one for it.

        Returns:
            Boolean, whether there is a slot. If `False`, close the connection.
        """
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            # Never serve more connections than there are slots.
            if not self._free.acquire(timeout=_LEAVING_TIME):
                return False
        with self._lock:
            self._strangers[peer] = None
        return True

    def keep(self, peer: socket.socket) -> None:
        """Protects a connection from being ended for a new one.

        Call it when the peer has sent the token, or before the connection is
        closed.
        """
        with self._lock:
            self._strangers.pop(peer, None)

    def leave(self) -> None:
        """Releases a slot, after its connection was closed."""
        self._free.release()

    def _end_oldest(self) -> None:
        with self._lock:
            peer = next(iter(self._strangers), None)
            if peer is None:
                return
            del self._strangers[peer]
            # The thread that serves it finds the end of its input. This is done
            # under the lock, because it must not be closed meanwhile.
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)


class TimelyReader(io.RawIOBase):
    """A reader of a connection with one time limit for all reads.

    The timeout of a socket holds for each call, so a peer that sends one byte
    at a time could take any time.

    Args:
        peer: Socket of the connection, whose timeout is changed.
        seconds: Float, the time limit from now on.
    """

    def __init__(self, peer: socket.socket, seconds: float) -> None:
        self._peer = peer
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        """Returns `True`."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Reads available bytes into a buffer, and returns their number.

        Raises:
            TimeoutError: If the time is over.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        self._peer.settimeout(left)
        return self._peer.recv_into(buffer)
