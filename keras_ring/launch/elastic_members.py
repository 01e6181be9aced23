"""The launcher's connections with the ranks of an elastic job."""

import socket
import time
from collections.abc import Callable

from keras_ring.launch.elastic.authority import Authority, Change
from keras_ring.launch.elastic.messages import (
    MOST_BYTES,
    MessageError,
    decode_report,
)
from keras_ring.launch.event_loop import EventLoop
from keras_ring.observe.words import rank_names

# Seconds that a busy machine may delay the launcher.
_OWN_DELAY = 2.0


class Members:
    """The ranks of a job that goes on without those that it loses.

    Each rank has a socket of its own to the launcher, of which it inherits one
    end. A context manager, whose exit closes them.

    Args:
        size: Integer, the number of ranks at first.
        say: Function that prints a line.
        silence: Float, the seconds for which a rank may be silent that others
            wait for.
    """

    def __init__(
        self, size: int, say: Callable[[str], None], *, silence: float
    ) -> None:
        self._authority = Authority(range(size))
        self._say = say
        self._ours: dict[int, socket.socket] = {}
        self._theirs: dict[int, socket.socket] = {}
        self._shown = 0
        self._silence = silence
        self._deadline: float | None = None

    def open(self, rank: int) -> int:
        """Returns the descriptor that a rank inherits, which is to start."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._ours[rank], self._theirs[rank] = ours, theirs
        return theirs.fileno()

    def watch(self, rank: int, events: EventLoop) -> None:
        """Begins to read what a rank says, which has started."""
        self._theirs.pop(rank).close()
        events.add(self._ours[rank], self._read, (rank, events))

    def on_end(self, rank: int) -> None:
        """Takes note that the process of a rank has ended."""
        self._send(self._authority.on_death(rank))

    def end(self, reason: str) -> None:
        """Ends the job: the ranks are told the reason when they ask."""
        self._send(self._authority.end(reason))

    @property
    def deadline(self) -> float | None:
        """The time, by `time.monotonic`, until which reports are awaited."""
        return self._deadline

    def take_silent(self) -> tuple[int, ...]:
        """Returns the ranks that have not reported in time.

        The others wait for them. They are returned once for each time.
        """
        now = time.monotonic()
        if self._deadline is None or now < self._deadline:
            return ()
        late = now - self._deadline
        self._deadline = now + self._silence
        # The launcher wakes up at the deadline, unless it was stopped itself,
        # maybe together with the ranks.
        return self._authority.awaited if late < _OWN_DELAY else ()

    @property
    def changes(self) -> list[Change]:
        """The generations that have followed the first one."""
        return self._authority.changes

    def close(self) -> None:
        """Closes the connections."""
        for each in (*self._ours.values(), *self._theirs.values()):
            each.close()

    def _read(self, source: tuple[int, EventLoop]) -> None:
        rank, events = source
        try:
            data = self._ours[rank].recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # Its end tells what there is to tell.
            events.remove(self._ours[rank])
            return
        try:
            report = decode_report(data)
        except MessageError as error:
            self._say(f"rank {rank} has sent {error}")
            return
        self._send(self._authority.on_report(rank, report))

    def _send(self, messages: dict[int, bytes]) -> None:
        for rank, message in messages.items():
            try:
                self._ours[rank].send(message)
            except OSError:
                # It has ended, which its process will tell.
                continue
        for change in self.changes[self._shown :]:
            self._say(_line(change))
        self._shown = len(self.changes)
        if not self._authority.awaited:
            self._deadline = None
        elif self._deadline is None:
            self._deadline = time.monotonic() + self._silence


def _line(change: Change) -> str:
    left = len(change.members)
    kept = "1 rank goes on" if left == 1 else f"{left} ranks go on"
    if not change.lost:
        return f"{kept} after an interruption: {change.cause}"
    return f"lost {rank_names(change.lost)}; {kept}"
