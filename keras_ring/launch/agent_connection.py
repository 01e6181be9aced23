"""The launcher's end of an agent: its process and its messages."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

from keras_ring.launch.frames import GREETING, Frame, FrameReader, encode
from keras_ring.launch.hosts import HostRanks
from keras_ring.launch.output import LineSplitter, Sink

_READ = 256 * 1024
_KEPT_LINES = 20
# Bytes before the greeting that are searched for it; earlier ones are dropped.
_MAX_NOISE = 1 << 20


def start_agent(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the process that becomes an agent, with pipes to it.

    Raises:
        OSError: If it cannot be started.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        # Ctrl-C is for the launcher, which tells the agents.
        start_new_session=True,
    )


class AgentConnection:
    """An agent that has been started.

    Args:
        host_ranks: `HostRanks`, the host and the ranks there.
        process: Process that `start_agent` returned.
    """

    def __init__(
        self, host_ranks: HostRanks, process: subprocess.Popen[bytes]
    ) -> None:
        self.host_ranks = host_ranks
        self.host = host_ranks.host
        self._process = process
        self.stdout = _fileno(self._process.stdout)
        self.stderr = _fileno(self._process.stderr)
        self.sink = Sink(_fileno(self._process.stdin))
        # No other process shares this end of the pipe.
        os.set_blocking(self.sink.fd, False)
        self.heard = 0.0
        """Time of its last message, by the clock of the loop that listens."""
        self.on_unsent: Callable[[AgentConnection], None] = lambda agent: None
        """Called from any thread when the pipe has not taken all bytes."""
        self.facts: dict[str, Any] = {}
        """Facts of its host; empty until it has sent them."""
        self.reached: dict[str, bool] = {}
        """For each address of rank 0, whether the agent reaches it."""
        self.listening: dict[str, Any] = {}
        """Port and addresses at which rank 0 will listen, if it is here."""
        self.serving: dict[str, Any] = {}
        """Port and addresses at which it answers hosts that try to reach it."""
        self.closed = False
        """Whether the agent has sent its last message."""
        self.ended = False
        """Whether its output has ended."""
        self.skew: float | None = None
        """Seconds by which its clock is behind, plus the delay of a message."""
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        """Last lines of its standard error, and of text before its greeting."""
        # Guards the sink and `ended`: the pulse comes from another thread.
        self._lock = threading.Lock()
        self._reader = FrameReader()
        self._noise: bytearray | None = bytearray()
        self._lines = LineSplitter()

    @property
    def greeted(self) -> bool:
        """Returns whether the agent has greeted, so that it runs."""
        return self._noise is None

    def say(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        """Sends a message, or as much of it as the pipe takes now."""
        self.send(encode(kind, payload, **fields))

    def send(self, frame: bytes) -> None:
        """Sends an encoded message. May be called from any thread."""
        with self._lock:
            if not self.ended:
                self.sink.put(frame)
                self._write()

    def write_some(self) -> None:
        """Writes what the pipe takes. Call it when the pipe is ready."""
        with self._lock:
            if not self.ended:
                self._write()

    def _write(self) -> None:
        try:
            self.sink.write_all()
        except BlockingIOError:
            self.on_unsent(self)
        except OSError:
            # Its output tells when it has ended.
            self.sink.discard()

    def silence(self) -> None:
        """Stops sending, and drops what has not been sent."""
        with self._lock:
            self.ended = True
            self.sink.discard()

    def read(self) -> list[Frame]:
        """Returns the messages that have arrived.

        Raises:
            FrameError: If the bytes are not valid messages.
        """
        data = os.read(self.stdout, _READ)
        if not data:
            self.ended = True
            return []
        if self._noise is not None:
            self._noise += data
            before, greeting, rest = bytes(self._noise).partition(GREETING)
            if not greeting:
                del self._noise[:-_MAX_NOISE]
                return []
            self._keep(before)
            self._noise, data = None, rest
        return self._reader.feed(data)

    def read_errors(self) -> list[bytes] | None:
        """Returns the lines that it has printed, or `None` at the end."""
        data = os.read(self.stderr, _READ)
        lines = self._lines.feed(data) if data else self._lines.finish()
        for line in lines:
            self._keep(line)
        return lines if data or lines else None

    def _keep(self, text: bytes) -> None:
        self.last_lines.extend(
            text.decode("utf-8", "backslashreplace").splitlines()
        )

    def note_time(self, theirs: float) -> None:
        """Estimates the offset of its clock from the time in a message.

        Messages arrive late, never early, so the smallest difference is the
        best estimate.
        """
        skew = time.time() - theirs
        if self.skew is None or skew < self.skew:
            self.skew = skew

    def here(self, theirs: float) -> float:
        """Returns a time of its clock as a time of ours."""
        return theirs + (self.skew or 0.0)

    def read_last_errors(self) -> None:
        """Reads the lines that it printed before it ended."""
        os.set_blocking(self.stderr, False)
        with contextlib.suppress(BlockingIOError):
            while self.read_errors() is not None:
                pass

    def wait(self, patience: float) -> int | None:
        """Waits for the end of its process.

        Returns:
            The exit code, or `None` if the process still runs.
        """
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def end(self, patience: float) -> None:
        """Waits for the end of its process, and kills it after `patience`."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        if self.wait(patience) is None:
            # Also kill the processes that it has started, such as a proxy: it
            # leads a session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _fileno(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise ValueError("not a pipe")
    return stream.fileno()
