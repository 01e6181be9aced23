"""The hosts on which processes start that join an elastic job."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keras_ring.launch.agent_connection import AgentConnection
from keras_ring.launch.agent_loop import AgentLoop
from keras_ring.launch.frames import Frame
from keras_ring.launch.hosts import Host, HostRanks, is_local
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.preflight import (
    HostsError,
    differences,
    start_agent_on,
    time_to_start,
    too_few_ports,
    why_ended,
)
from keras_ring.launch.usage import say

# Seconds between two looks at the hosts.
_PAUSE = 1.0
# How often the time may double for which a host is left alone.
_MOST_DOUBLINGS = 6


@dataclass
class _Cooling:
    """A host that has failed."""

    until: float = 0.0
    failures: int = 0


class _Trying(NamedTuple):
    """A new agent, and one that it tries to reach."""

    agent: AgentConnection
    server: AgentConnection
    address: str  # "": any of its addresses


class ElasticHosts:
    """The hosts of an elastic job, which may change.

    A host is used once its agent has started, is like the others, and reaches
    them. A host that fails is left alone for a while, then for twice as long,
    and so on, until a rank of it comes in.

    Args:
        plan: `LaunchPlan` of the job.
        loop: `AgentLoop`, with the agents of the hosts that are used at first.
        wanted: Function that returns the hosts that there are.
        meet: Function that returns the agent of a host that others must reach,
            and the address at which they must; `""` if any will do.
        begin: Function that tells an agent what it needs to start ranks.
        let_go: Function called with an agent whose host is not wanted any more;
            it ends its ranks.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        loop: AgentLoop,
        *,
        wanted: Callable[[], Sequence[Host]],
        meet: Callable[[], tuple[AgentConnection, str] | None],
        begin: Callable[[AgentConnection], None],
        let_go: Callable[[AgentConnection], None],
    ) -> None:
        self._plan = plan
        self._loop = loop
        self._wanted = wanted
        self._meet = meet
        self._begin = begin
        self._let_go = let_go
        self._used = {agent.host: agent for agent in loop.agents}
        # Until when each is to be ready.
        self._starting: dict[AgentConnection, float] = {}
        # The one that tries to reach the other one, at an address.
        self._trying: _Trying | None = None
        self._cooling: dict[str, _Cooling] = {}
        self._gone: list[AgentConnection] = []
        self._next_look = 0.0
        loop.verbs["serving"] = self._on_serving

    @property
    def deadline(self) -> float:
        """The time, by `time.monotonic`, at which to call `follow`."""
        return self._next_look

    def places(self) -> dict[AgentConnection, int]:
        """Returns the agents on which ranks may start, and how many each."""
        now = time.monotonic()
        most = self._plan.max_size or 0
        slots = {host.name: min(host.slots, most) for host in self._wanted()}
        return {
            agent: slots[name]
            for name, agent in self._used.items()
            if name in slots and now >= self._of(name).until
        }

    def follow(self) -> None:
        """Starts agents, and ends them. Call it whenever something happened."""
        closed = (each for each in self._loop.agents if each.closed)
        for agent in {*self._gone, *closed}:
            self._loop.remove(agent)
        self._gone.clear()
        now = time.monotonic()
        for agent, until in list(self._starting.items()):
            if now >= until:
                self._fail(agent, "it has not answered in time")
        self._try_next()
        if now < self._next_look:
            return
        self._next_look = now + _PAUSE
        wanted = {host.name: host for host in self._wanted()}
        for name, agent in list(self._used.items()):
            if name not in wanted:
                say(f"{name} is no more among the hosts: its ranks leave")
                self.leave(agent)
        starting = {agent.host for agent in self._starting}
        for name, host in wanted.items():
            is_new = name not in self._used and name not in starting
            if is_new and now >= self._of(name).until:
                self._start(host)

    def leave(self, agent: AgentConnection) -> None:
        """Uses a host no more, which has not failed."""
        self._forget_server(agent)
        if self._used.get(agent.host) is agent:
            del self._used[agent.host]
            self._cool(agent.host)
            self._let_go(agent)

    def on_join(self, agent: AgentConnection) -> None:
        """Takes note that a rank of a host has come in."""
        self._cooling.pop(agent.host, None)

    def on_failed_joiner(self, agent: AgentConnection) -> None:
        """Takes note that a process has failed that was to join."""
        # Several of a host fail for one reason.
        if time.monotonic() >= self._of(agent.host).until:
            self._cool(agent.host)

    def on_loss(self, agent: AgentConnection, why: str) -> bool:
        """Takes note that an agent has ended, or is silent.

        Args:
            agent: `AgentConnection`.
            why: String, how it was lost.

        Returns:
            Boolean, whether it was about to start, or had failed before.
        """
        if agent in self._gone:
            return True
        self._forget_server(agent)
        if agent in self._starting:
            if agent.wait(0.1) is not None:
                why = why_ended(agent, self._plan.shell)
            self._fail(agent, why)
            return True
        if self._used.get(agent.host) is agent:
            del self._used[agent.host]
            self._cool(agent.host)
        self._gone.append(agent)
        return False

    def on_problem(self, agent: AgentConnection, text: str) -> bool:
        """Takes note that an agent cannot start ranks.

        Returns:
            Boolean, `False` if it is one of those that the job began with.
        """
        if agent.host_ranks.ranks:
            return False
        self._used.pop(agent.host, None)
        self._fail(agent, text)
        return True

    def _of(self, name: str) -> _Cooling:
        return self._cooling.get(name, _Cooling())

    def _cool(self, name: str) -> float:
        """Leaves a host alone for a while; returns the seconds."""
        cooling = self._cooling.setdefault(name, _Cooling())
        doublings = min(cooling.failures, _MOST_DOUBLINGS)
        seconds = self._plan.patience.host_cooldown * float(2**doublings)
        cooling.failures += 1
        cooling.until = time.monotonic() + seconds
        return seconds

    def _start(self, host: Host) -> None:
        local = is_local(host.name, self._plan.own_names)
        places = min(host.slots, self._plan.max_size or 0)
        none = range(self._plan.size, self._plan.size)
        host_ranks = HostRanks(host.name, none, local, places)
        try:
            agent = start_agent_on(host_ranks, self._plan, self._loop)
        except HostsError as error:
            self._note_failure(host.name, str(error))
            return
        limit = time.monotonic() + time_to_start(self._plan)
        self._starting[agent] = limit

    def _try_next(self) -> None:
        """Lets one that has started reach a host of the job."""
        if self._trying is not None:
            agent, server, address = self._trying
            addresses = server.serving.get("addresses", ())
            tried = {each: agent.reached.get(each) for each in addresses}
            if not tried or None in tried.values():
                return
            self._stop_trying()
            wanted = [address] if address in tried else list(tried)
            if any(tried[each] for each in wanted):
                self._accept(agent)
            else:
                where = " or ".join(wanted)
                self._fail(agent, f"it does not reach {server.host} at {where}")
        for agent in list(self._starting):
            if not agent.facts:
                continue
            meeting = self._meet()
            if meeting is None:
                return
            if lines := self._lacks(agent, meeting[0]):
                self._fail(agent, "; ".join(lines))
                continue
            self._trying = _Trying(agent, *meeting)
            self._trying.server.serving.clear()
            self._trying.server.say("serve", token=secrets.token_hex(16))
            return

    def _lacks(
        self, agent: AgentConnection, other: AgentConnection
    ) -> list[str]:
        """Returns what a host lacks to be like another one, line by line."""
        lines = differences([other, agent])
        if ports := too_few_ports(agent, self._plan):
            lines.insert(0, ports)
        if problem := agent.facts.get("problem"):
            lines.insert(0, problem)
        return lines

    def _on_serving(self, agent: AgentConnection, frame: Frame) -> None:
        if self._trying is None or self._trying.server is not agent:
            return
        trying = self._trying.agent
        if problem := frame.fields.get("problem"):
            self._fail(trying, f"{agent.host}: {problem}")
            return
        agent.serving.update(frame.fields)
        trying.reached.clear()
        trying.say(
            "reach",
            addresses=frame.fields["addresses"],
            port=frame.fields["port"],
        )

    def _stop_trying(self) -> None:
        if self._trying is not None:
            self._trying.server.say("stop_serving")
            self._trying = None

    def _forget_server(self, agent: AgentConnection) -> None:
        """Tries another one, if this one is to be reached."""
        if self._trying is not None and self._trying.server is agent:
            self._trying = None

    def _accept(self, agent: AgentConnection) -> None:
        del self._starting[agent]
        self._used[agent.host] = agent
        say(f"{agent.host} has come; it takes {agent.host_ranks.places} ranks")
        self._begin(agent)

    def _fail(self, agent: AgentConnection, why: str) -> None:
        if self._trying is not None and self._trying.agent is agent:
            self._stop_trying()
        self._starting.pop(agent, None)
        self._gone.append(agent)
        self._note_failure(agent.host, why)

    def _note_failure(self, name: str, why: str) -> None:
        seconds = self._cool(name)
        say(f"{name} takes no ranks for {seconds:g} s: {why}")
