"""The sockets between ranks of an elastic job and the process that starts them.

That is the launcher, or the agent of their host, which passes on what they say.
"""

import socket
from collections.abc import Callable

from keras_ring.launch.elastic.messages import MOST_BYTES
from keras_ring.launch.event_loop import EventLoop


class MemberSockets:
    """A socket pair for each rank that this process starts.

    The rank inherits one end, so no other process can speak for either side.

    Args:
        events: `EventLoop` that waits for what the ranks say.
        hear: Function called with a rank and a message of it.
    """

    def __init__(
        self, events: EventLoop, hear: Callable[[int, bytes], None]
    ) -> None:
        self._events = events
        self._hear = hear
        self._ours: dict[int, socket.socket] = {}
        self._theirs: dict[int, socket.socket] = {}

    def open(self, rank: int) -> int:
        """Returns the descriptor that a rank inherits, which is to start."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._ours[rank], self._theirs[rank] = ours, theirs
        return theirs.fileno()

    def watch(self, rank: int) -> None:
        """Begins to read what a rank says, which has started."""
        self._theirs.pop(rank).close()
        self._events.add(self._ours[rank], self._read, rank)

    def send(self, rank: int, message: bytes) -> None:
        """Sends a message to a rank, unless it has ended."""
        try:
            self._ours[rank].send(message)
        except (OSError, KeyError):
            # Its process tells that.
            return

    def disconnect(self, rank: int) -> None:
        """Closes the socket of a rank that has ended, or could not start."""
        for ends in (self._ours, self._theirs):
            if (end := ends.pop(rank, None)) is not None:
                self._events.remove(end)
                end.close()

    def close(self) -> None:
        """Closes all of them."""
        for rank in list(self._ours):
            self.disconnect(rank)

    def _read(self, rank: int) -> None:
        if rank not in self._ours:
            # This event came together with the one that told of its end.
            return
        try:
            data = self._ours[rank].recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._hear(rank, data)
        else:
            # Its end tells what there is to tell.
            self.disconnect(rank)
