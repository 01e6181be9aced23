"""An agent: runs the ranks of one host for a launcher, mostly of another.

The launcher starts it through `ssh`; they speak through its standard input and
output (`frames`). The agent guarantees on its host what the launcher guarantees
for a job on one host: no process of a rank is left, whether the agent, the
launcher or the connection between them ends. The end of its input is not
enough to detect that, because a connection may be cut without notice. So both
send a sign of life every second.

This module holds the conversation: `agent_ranks` runs the ranks,
`agent_network` tries the network, and `agent_results` sends the files that the
ranks have left.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from keras_ring.launch import host_facts, signals
from keras_ring.launch.agent_answers import LateAnswers
from keras_ring.launch.agent_network import HostNetwork
from keras_ring.launch.agent_ranks import AgentRanks
from keras_ring.launch.agent_results import Results
from keras_ring.launch.event_loop import EventLoop
from keras_ring.launch.frames import (
    GREETING,
    PULSE,
    Frame,
    FrameError,
    FrameReader,
    encode,
)
from keras_ring.launch.output import Sink
from keras_ring.launch.running_clock import RunningClock
from keras_ring.launch.signals import SignalPipe
from keras_ring.protocol import standard_streams

# Seconds between the signs of life of an agent that gets no messages.
_OWN_PULSE = 1.5 * PULSE
_READ = 64 * 1024


class _Gone(Exception):
    """Raised if the launcher is lost."""


class Agent:
    """The conversation with the launcher, for the ranks of this host.

    Args:
        hello: Dictionary, the first message of the launcher: the `environment`
            of the ranks, their `directory` and `command`, the number of `ranks`
            on this host, their `threads`, `bind` and `interface`, the `ports`
            that they may use, the seconds to `reach` an address, their soft
            limit of `open_files` if it differs from that of this process, and
            the seconds of `silence` after which the launcher is lost.
        source: Integer, the descriptor from which frames are read.
        sink: Integer, the descriptor to which frames are written.
    """

    def __init__(
        self, hello: Mapping[str, Any], source: int, sink: int
    ) -> None:
        self._hello = hello
        self._source = source
        self._sink = Sink(sink)
        self._reader = FrameReader()
        self._events = EventLoop()
        # Whether the launcher has been asked for the end.
        self._asked = False
        self._clock = RunningClock(_OWN_PULSE)
        self._heard = self._clock.now()
        self._next_pulse = 0.0
        self._closed = False
        # Whether nobody takes the output of the launcher.
        self._held = False
        self._final_messages: Iterator[bytes] | None = None
        answer_later = LateAnswers(self._events, self._sink.put).answer_later
        network = HostNetwork(hello, self._say, answer_later)
        self._ranks = AgentRanks(
            hello,
            events=self._events,
            network=network,
            say=self._say,
            answer_later=answer_later,
        )
        self._verbs: dict[str, Callable[[Frame], None]] = {
            "alive": self._answer_pulse,
            "hold": self._hold,
            "close": self._close,
            **network.verbs,
            **self._ranks.verbs,
        }

    def run(self) -> None:
        """Serves the launcher. Returns when the job is over or it is lost."""
        self._sink.put(GREETING)
        self._prepare()
        self._look_at_clock()
        self._heard = self._clock.now()
        with SignalPipe() as pipe:
            self._events.add_wake_up(pipe)
            self._events.add(self._source, self._hear, self._source)
            try:
                while not (self._closed and self._sink.empty):
                    self._step(pipe)
            except (_Gone, FrameError, OSError):
                # Nobody is left to be told.
                return
            finally:
                self._ranks.close()

    def _say(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        self._sink.put(encode(kind, payload, **fields))

    def _prepare(self) -> None:
        """Reports the facts of this host, and what it lacks for the job."""
        problem = self._ranks.prepare()
        ports = self._hello["ports"]
        wanted = range(ports[0], ports[1] + 1) if ports else None
        self._say("ready", problem=problem, **host_facts.gather(wanted))

    def _step(self, pipe: SignalPipe) -> None:
        self._go_on_with_final_messages()
        self._arm()
        now = time.monotonic()
        if now >= self._next_pulse:
            self._next_pulse = now + _OWN_PULSE
            self._say("alive", time=time.time())
        # The launcher may rely on the end of the ranks here by then.
        lost = self._heard + self._hello["silence"] - self._clock.now()
        ready = self._events.wait(max(0.0, min(self._next_pulse - now, lost)))
        self._look_at_clock()
        for handle, source in ready:
            handle(source)
        while self._sink.always_ready and not self._sink.empty:
            self._sink.write_some()
        # Check the silence only after reading: this process itself may have
        # been held up.
        self._look_at_clock()
        if self._clock.now() - self._heard > self._hello["silence"]:
            raise _Gone
        for signum in pipe.read():
            if signum in signals.STOPPING:
                self._on_signal(signum)

    def _arm(self) -> None:
        """Registers the events to wait for now."""
        # Ranks that print more than the launcher takes have to wait.
        self._ranks.listen(not self._sink.full and not self._held)
        sink = self._sink
        if not sink.always_ready:
            self._events.want_to_write(
                sink.fd, not sink.empty, Sink.write_some, sink
            )

    def _on_signal(self, signum: int) -> None:
        """Asks the launcher for the end of the job, or gives up.

        The host shuts down, or a scheduler ends the job. The ranks get the
        time that the launcher gives them, if there is that much.
        """
        # The other end of `ssh` has gone.
        gone = signum == signal.SIGHUP
        if gone or self._asked or not self._ranks.running:
            raise _Gone
        self._asked = True
        self._say("asked", number=signum)

    def _look_at_clock(self) -> None:
        """Restarts the limit of silence if this process has stood still.

        The launcher was not silent then. If it was stopped as well, it may
        continue somewhat later.
        """
        if self._clock.look() >= self._hello["silence"] / 3:
            self._heard = self._clock.now()

    def _hear(self, source: int) -> None:
        data = os.read(source, _READ)
        if not data:
            raise _Gone
        self._heard = self._clock.now()
        for frame in self._reader.feed(data):
            self._verbs[frame.kind](frame)

    def _answer_pulse(self, frame: Frame) -> None:
        self._next_pulse = 0.0

    def _hold(self, frame: Frame) -> None:
        """Reads the ranks' output no more, or again."""
        self._held = frame.fields["held"]

    def _close(self, frame: Frame) -> None:
        """Ends the ranks, and begins to send the files that they left."""
        if self._closed or self._final_messages is not None:
            return  # it has been told so before
        leftover = self._ranks.end()
        results = self._ranks.results()
        results.send_files(self._say)
        self._final_messages = _final_messages(results, leftover)

    def _go_on_with_final_messages(self) -> None:
        """Sends as much as the launcher takes now: timelines may be long."""
        while self._final_messages is not None and not self._sink.full:
            frame = next(self._final_messages, None)
            if frame is None:
                self._final_messages, self._closed = None, True
            else:
                self._sink.put(frame)


def _final_messages(results: Results, leftover: int) -> Iterator[bytes]:
    yield from results.timeline_messages()
    yield encode("closed", leftover=leftover)


def main(hello: Mapping[str, Any]) -> NoReturn:
    """Runs an agent on the standard streams of this process."""
    standard_streams.fill_closed()
    # Keep frames apart from text that other code of this process prints.
    sink = os.dup(1)
    os.dup2(2, 1)
    # The loss of the launcher shows as an error of a write, not as a signal.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    Agent(hello, 0, sink).run()
    os._exit(0)
