"""An agent: runs the ranks of one host for a launcher, mostly of another.

The launcher starts it through `ssh`; they speak through its standard input and
output (`frames`). What the launcher promises of a job on one host, the agent
keeps here: however it, the launcher, or what is between them ends, no process
of a rank is left. The end of its input is not enough for that: a connection
may be cut without a word, so both say every second that they live.

Here is the conversation: `agent_ranks` runs the ranks, `agent_network` tries
the network, `agent_results` hands over what the ranks have left.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from keras_ring._launch_protocol import standard_streams
from keras_ring.launcher import host_facts, signals
from keras_ring.launcher.agent_answers import LateAnswers
from keras_ring.launcher.agent_network import HostNetwork
from keras_ring.launcher.agent_ranks import AgentRanks
from keras_ring.launcher.agent_results import Results
from keras_ring.launcher.event_loop import EventLoop
from keras_ring.launcher.frames import (
    GREETING,
    PULSE,
    Frame,
    FrameError,
    FrameReader,
    encode,
)
from keras_ring.launcher.output import Sink
from keras_ring.launcher.running_clock import RunningClock
from keras_ring.launcher.signals import SignalPipe

# Of an agent that is not spoken to.
_OWN_PULSE = 1.5 * PULSE
_READ = 64 * 1024


class _Gone(Exception):
    """The launcher is not there any more."""


class Agent:
    """Speaks with the launcher, for the ranks of this host.

    Args:
        hello: What the launcher has said first: the `environment` of the
            ranks, their `directory`, their `command`, how many `ranks` there
            are on this host, their `threads`, `bind` and `interface`, their
            soft limit of `open_files` if that is another than this process's,
            and how many seconds of `silence` end them.
        source: Descriptor from which frames come.
        sink: Descriptor to which they go.
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
            "close": self._close,
            **network.verbs,
            **self._ranks.verbs,
        }

    def run(self) -> None:
        """Serves the launcher; returns when it is done, or gone."""
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
        """Tells what this host has, and what it lacks for the job."""
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
        ready = self._events.wait(max(0.0, self._next_pulse - now))
        self._look_at_clock()
        for handle, source in ready:
            handle(source)
        while self._sink.always_ready and not self._sink.empty:
            self._sink.write_some()
        # After the look at what it has said: this process itself may have been
        # held up.
        self._look_at_clock()
        if self._clock.now() - self._heard > self._hello["silence"]:
            raise _Gone
        for signum in pipe.read():
            if signum in signals.STOPPING:
                self._on_signal(signum)

    def _arm(self) -> None:
        """Says what is to be waited for now."""
        # Ranks that print more than the launcher takes have to wait.
        self._ranks.listen(not self._sink.full)
        sink = self._sink
        if not sink.always_ready:
            self._events.want_to_write(
                sink.fd, not sink.empty, Sink.write_some, sink
            )

    def _on_signal(self, signum: int) -> None:
        """Asks the launcher for the end of the job, or gives up.

        This host shuts down, or a scheduler wants the job gone: ranks get the
        time that the launcher gives them, if there is that much.
        """
        # The other end of `ssh` has gone.
        gone = signum == signal.SIGHUP
        if gone or self._asked or not self._ranks.running:
            raise _Gone
        self._asked = True
        self._say("asked", number=signum)

    def _look_at_clock(self) -> None:
        """Finds out whether this process has stood still.

        Then the launcher was not silent; if it was stopped as well, it may go
        on somewhat later.
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

    def _close(self, frame: Frame) -> None:
        """Ends what is left; then its ranks' notes are handed over."""
        leftover = self._ranks.end()
        results = self._ranks.results()
        results.send_files(self._say)
        self._final_messages = _final_messages(results, leftover)

    def _go_on_with_final_messages(self) -> None:
        """Says as much as the launcher takes: timelines may be long."""
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
    # What anything here prints by itself is none of a frame.
    sink = os.dup(1)
    os.dup2(2, 1)
    # A launcher that is gone is noticed by what is written, not by a signal.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    Agent(hello, 0, sink).run()
    os._exit(0)
