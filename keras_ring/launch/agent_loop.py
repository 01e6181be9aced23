"""The event loop over the agents of a job and the launcher's outputs.

It has one thread and one selector, and sleeps until an agent sends a message, a
signal comes, a slow output takes more bytes, or a deadline passes. Its work
depends on the messages that arrive and not on the number of silent agents,
because a job may have thousands of hosts.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from keras_ring.launch.agent_connection import AgentConnection
from keras_ring.launch.event_loop import EventLoop
from keras_ring.launch.frames import PULSE, Frame, FrameError, encode
from keras_ring.launch.output import Sink
from keras_ring.launch.patience import Patience
from keras_ring.launch.running_clock import RunningClock
from keras_ring.launch.signals import SignalPipe
from keras_ring.launch.text_format import LogFormat, TextFormat

_LEAVING_TIME = 2.0
# Seconds to wait for a process whose output has ended.
_DYING_TIME = 0.1


class AgentLoop:
    """The loop that waits for agents and passes on their messages.

    Args:
        sinks: The `Sink`s of the launcher's standard output and standard error.
        on_signal: Function called with each signal that the launcher gets.
        on_loss: Function called with an agent that ended before its last
            message, and the reason.
        on_deaf: Function called when nobody reads the launcher's output.
        log_format: `LogFormat` of the lines that agents print. Defaults to
            text.
        silence: Float, seconds without a sign of life after which an agent is
            lost.
        hold_ranks: Boolean, whether agents are told to read their ranks no
            more, while nobody takes the output. Otherwise they are not read
            themselves, so that nothing comes from them.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        on_signal: Callable[[int], None],
        on_loss: Callable[[AgentConnection, str], None],
        on_deaf: Callable[[], None],
        log_format: LogFormat | None = None,
        silence: float = Patience.host_timeout,
        hold_ranks: bool = False,
    ) -> None:
        self.agents: list[AgentConnection] = []
        self.verbs: dict[str, Callable[[AgentConnection, Frame], None]] = {
            "alive": lambda agent, frame: agent.note_time(frame.fields["time"])
        }
        self._sinks = sinks
        self._on_signal = on_signal
        self._on_loss = on_loss
        self._on_deaf = on_deaf
        self._format = log_format or TextFormat()
        self._events = EventLoop()
        self._pipe = SignalPipe()
        self._silence = silence
        self._hold_ranks = hold_ranks
        self._clock = RunningClock(PULSE)
        # No agent can be silent for too long before this time.
        self._next_look = 0.0
        # Agents whose pipe has not taken all bytes.
        self._unsent: deque[AgentConnection] = deque()
        self.held = False
        """True while output waits that nobody takes: no more is read then."""
        self._pulse = threading.Thread(target=self._beat, daemon=True)
        self._over = threading.Event()
        self.urgent = False
        """Whether agents are read although the reader of output is slow."""

    def __enter__(self) -> "AgentLoop":
        """Starts to receive signals and to send signs of life."""
        self._pipe.__enter__()
        self._events.add(self._pipe, self._take_signals, self._pipe)
        self._pulse.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restores the signals, and stops sending signs of life."""
        self._over.set()
        self._pulse.join()
        self._events.close()
        self._pipe.__exit__(kind, error, trace)

    def _beat(self) -> None:
        """Sends the signs of life of the launcher to agents.

        Runs in its own thread, because the loop writes to files and terminals,
        which may block for longer than agents wait.
        """
        frame = encode("alive")
        while not self._over.wait(PULSE):
            for agent in list(self.agents):
                agent.send(frame)

    def add(self, agent: AgentConnection) -> None:
        """Listens to an agent from now on."""
        agent.heard = self._clock.now()
        agent.on_unsent = self._unsent.append
        self.agents.append(agent)
        if not self._is_deaf:
            self._listen(agent)
        self._events.add(agent.stderr, self._hear_errors, agent)

    def say(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        """Sends a message to all agents."""
        frame = encode(kind, payload, **fields)
        for agent in self.agents:
            agent.send(frame)

    def step(self, until: float | None) -> None:
        """Waits for the next events, and handles them.

        Args:
            until: Float, the latest time to return, by `time.monotonic`; `None`
                for no limit other than that of silence.
        """
        self._arm()
        limit = min(PULSE, self._next_look - self._clock.now())
        if until is not None:
            limit = min(limit, until - time.monotonic())
        ready = self._events.wait(max(0.0, limit))
        self._look_at_clock()
        for handle, source in ready:
            handle(source)
        # A file or a terminal may have held this process up.
        self._look_at_clock()
        if self._clock.now() >= self._next_look:
            self._look_for_silence()
        for sink in self._sinks:
            if sink.always_ready and not sink.empty:
                self.write(sink)

    def _arm(self) -> None:
        """Registers the events to wait for now."""
        full = not self.urgent and any(sink.full for sink in self._sinks)
        if full != self.held:
            self._hold(full)
        while self._unsent:
            self._arm_pipe(self._unsent.popleft())
        for sink in self._sinks:
            if not sink.always_ready:
                self._events.want_to_write(
                    sink.fd, not sink.empty, self.write, sink
                )

    def _hold(self, held: bool) -> None:
        """Stops reading from agents, or reads from them again.

        This holds up ranks that print more than the reader takes.
        """
        self.held = held
        if self._hold_ranks:
            self.say("hold", held=held)
            return
        for agent in self.agents:
            if agent.ended:
                continue
            if held:
                self._events.remove(agent.stdout)
            else:
                self._listen(agent)
        self._begin_anew()

    @property
    def _is_deaf(self) -> bool:
        """True while agents are not read."""
        return self.held and not self._hold_ranks

    def _listen(self, agent: AgentConnection) -> None:
        self._events.add(agent.stdout, self._hear, agent)

    def _arm_pipe(self, agent: AgentConnection) -> None:
        if not agent.ended:
            self._events.want_to_write(
                agent.sink.fd, not agent.sink.empty, self._talk, agent
            )

    def _take_signals(self, pipe: SignalPipe) -> None:
        for signum in pipe.read():
            self._on_signal(signum)

    def write(self, sink: Sink) -> None:
        """Writes pending bytes to one of the launcher's own outputs."""
        if not sink.write():
            self._on_deaf()

    def _talk(self, agent: AgentConnection) -> None:
        agent.write_some()
        self._arm_pipe(agent)

    def _hear(self, agent: AgentConnection) -> None:
        try:
            frames = agent.read()
            agent.heard = self._clock.now()
            for frame in frames:
                self.verbs[frame.kind](agent, frame)
        except (FrameError, KeyError) as error:
            self._lose(agent, f"its agent broke the protocol: {error}")
            return
        if agent.ended:
            self.forget(agent)
            if not agent.closed:
                self._on_loss(agent, self._why_ended(agent))

    def _why_ended(self, agent: AgentConnection) -> str:
        code = agent.wait(_DYING_TIME)
        text = (
            "its agent"
            if agent.host_ranks.local
            else "its agent, or ssh to it,"
        )
        text += " has ended" + (f" (exit code {code})" if code else "")
        said = agent.last_lines[-1] if agent.last_lines else ""
        return f"{text}: {said}" if said else text

    def _hear_errors(self, agent: AgentConnection) -> None:
        try:
            lines = agent.read_errors()
        except BlockingIOError:
            return  # they have been read since it was told that there are some
        if lines is None:
            self._events.remove(agent.stderr)
            return
        if agent.greeted:
            for line in lines:
                self._sinks[1].put(self._format.of_agent(agent.host, line))

    def _watched(self) -> list[AgentConnection]:
        """Returns the agents that must send a sign of life every second."""
        # Before the greeting, the time limit of `ssh` applies.
        return [
            agent
            for agent in self.agents
            if agent.greeted and not agent.ended and not agent.closed
        ]

    def _look_at_clock(self) -> None:
        """Restarts the limits of silence if this process has stood still.

        The agents were not silent then. If they were stopped as well, they may
        continue somewhat later.
        """
        if self._clock.look() >= self._silence / 3:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Restarts the limit of silence of all agents."""
        now = self._clock.now()
        for agent in self.agents:
            agent.heard = now
        self._next_look = now + self._silence

    def _look_for_silence(self) -> None:
        now = self._clock.now()
        # An agent that speaks meanwhile is due later; none is due earlier.
        self._next_look = now + self._silence
        for agent in [] if self._is_deaf else self._watched():
            due = agent.heard + self._silence
            if now < due:
                self._next_look = min(self._next_look, due)
            else:
                self._lose(
                    agent,
                    f"nothing was heard from it for {self._silence:g} s; it or"
                    " its network is gone (--host-timeout gives it more time)",
                )

    def _lose(self, agent: AgentConnection, why: str) -> None:
        self.forget(agent)
        self._on_loss(agent, why)

    def forget(self, agent: AgentConnection) -> None:
        """Stops listening to an agent."""
        agent.silence()
        for fd in (agent.stdout, agent.sink.fd):
            self._events.remove(fd)

    def remove(self, agent: AgentConnection) -> None:
        """Removes an agent that has ended, or is to end at once.

        Not to be called from within `step`: it may have further events.
        """
        self.forget(agent)
        self._events.remove(agent.stderr)
        self.agents.remove(agent)
        agent.end(0.0)

    def close(self, silence: float, hurried: Callable[[], bool]) -> None:
        """Ends the agents, and all processes that are left on their hosts.

        Args:
            silence: Float, the seconds without a message that agents may take
                while they send the files of their ranks.
            hurried: Function that returns whether the user wants the end now.
        """
        self._silence = silence
        self._next_look = 0.0
        self.say("close")
        left = deque(agent for agent in self.agents if agent.greeted)
        while left and not hurried():
            if left[0].ended:
                left.popleft()
            else:
                self.step(None)
        for agent in self.agents:
            self.forget(agent)
            agent.end(_LEAVING_TIME if agent.closed else 0.2)
