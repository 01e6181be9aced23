"""Checks of all hosts before a job starts there."""

import sys
import time
from collections.abc import Callable, Sequence

from keras_ring.launch import host_facts, remote_shell
from keras_ring.launch.agent_connection import AgentConnection, start_agent
from keras_ring.launch.agent_loop import AgentLoop
from keras_ring.launch.frames import Frame
from keras_ring.launch.hosts import HostRanks
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.remote_shell import RemoteShell

# Seconds for a shell and Python to start, beyond the time limit of `ssh`.
_GREETING_TIME = 30.0
_ANSWER_TIME = 15.0


class HostsError(Exception):
    """Raised if the job cannot start on its hosts, with a text for the user."""


class Preflight:
    """The start of the agents of a job, and the checks of their hosts.

    Args:
        plan: `LaunchPlan` of the job.
        loop: `AgentLoop` to which the agents are added.
        stopped: Function that returns whether the user has asked for the end.
    """

    def __init__(
        self, plan: LaunchPlan, loop: AgentLoop, stopped: Callable[[], bool]
    ) -> None:
        self._plan = plan
        self._loop = loop
        self._stopped = stopped
        loop.verbs.update(
            ready=self._on_ready,
            listening=lambda agent, frame: agent.listening.update(frame.fields),
            counted=lambda agent, frame: agent.listening.update(frame.fields),
            reached=lambda agent, frame: agent.reached.update(
                {frame.fields["address"]: frame.fields["reached"]}
            ),
        )

    @property
    def answer_time(self) -> float:
        """The seconds for a host to answer."""
        return max(_ANSWER_TIME, self._plan.patience.connect_timeout)

    def _on_ready(self, agent: AgentConnection, frame: Frame) -> None:
        agent.facts.update(frame.fields)
        agent.note_time(frame.fields["time"])

    def run(self) -> str:
        """Runs all checks, and returns the address of rank 0.

        Returns:
            String, the `host:port` at which all hosts reach rank 0. `""` if the
            user has asked for the end meanwhile.

        Raises:
            HostsError: If a host cannot be reached, lacks something, or
                differs from the others.
        """
        self.gather()
        if self._stopped():
            return ""
        if lines := self.differences():
            raise HostsError("\n".join(lines))
        return self._choose_address()

    def gather(self) -> None:
        """Starts the agents, and waits for the facts of their hosts.

        Raises:
            HostsError: If a host cannot be reached.
        """
        self._start_agents()
        self.wait_for(
            "start", time_to_start(self._plan), lambda agent: bool(agent.facts)
        )

    def _start_agents(self) -> None:
        for host_ranks in self._plan.host_ranks:
            start_agent_on(host_ranks, self._plan, self._loop)

    def wait_for(
        self,
        what: str,
        seconds: float,
        done: Callable[[AgentConnection], bool],
        agents: Sequence[AgentConnection] | None = None,
    ) -> None:
        """Waits until agents have sent an answer.

        Returns early if the user has asked for the end.

        Args:
            what: String, what the agents do, for the error: "did not `what`".
            seconds: Float, the time limit.
            done: Function that returns whether an agent has answered.
            agents: Sequence of agents to wait for. Defaults to all.

        Raises:
            HostsError: If one of them does not answer in time, or any agent
                ends.
        """
        wanted = self._loop.agents if agents is None else agents
        end = time.monotonic() + seconds
        while not self._stopped():
            gone = [agent for agent in self._loop.agents if agent.ended]
            if gone:
                raise HostsError(
                    "\n".join(
                        why_ended(agent, self._plan.shell) for agent in gone
                    )
                )
            left = [agent for agent in wanted if not done(agent)]
            if not left:
                return
            if time.monotonic() > end:
                names = ", ".join(agent.host for agent in left)
                raise HostsError(
                    f"the agent on {names} did not {what} within"
                    f" {seconds:.0f} s (--connect-timeout gives it more)"
                )
            self._loop.step(end)

    def differences(self) -> list[str]:
        """Returns the problems of the hosts, line by line; `[]` if none."""
        agents = self._loop.agents
        lines = [
            f"{agent.host}: {agent.facts['problem']}"
            for agent in agents
            if agent.facts.get("problem")
        ]
        ports = (too_few_ports(agent, self._plan) for agent in agents)
        lines += [
            f"{agent.host}: {line}"
            for agent, line in zip(agents, ports, strict=True)
            if line
        ]
        return lines + differences(agents)

    def _choose_address(self) -> str:
        first, others = self._loop.agents[0], self._loop.agents[1:]
        first.say("listen")
        self.wait_for(
            "listen",
            self.answer_time,
            lambda agent: bool(agent.listening),
            [first],
        )
        if self._stopped():
            return ""
        told = first.listening
        if told["problem"]:
            raise HostsError(f"{first.host}: {told['problem']}")
        addresses, port = told["addresses"], told["port"]
        if not addresses:
            raise HostsError(
                f"{first.host} has no address that other hosts could reach"
            )
        for agent in others:
            agent.say("reach", addresses=addresses, port=port)
        self.wait_for(
            "try to reach the first host",
            self.answer_time,
            lambda agent: len(agent.reached) == len(addresses),
            others,
        )
        if self._stopped():
            return ""
        for address in addresses:
            if all(agent.reached[address] for agent in others):
                name = f"[{address}]" if ":" in address else address
                return f"{name}:{port}"
        without = [
            agent.host for agent in others if not any(agent.reached.values())
        ] or [agent.host for agent in others]
        where = (
            f"{', '.join(without)} cannot reach {first.host} at"
            f" {' or '.join(addresses)}, port {port}"
        )
        if self._is_flooded(first):
            raise HostsError(
                f"{where}: somebody else has opened so many connections to it"
                " that it takes no more (--interface and --port-range choose"
                " another network and other ports)"
            )
        raise HostsError(
            f"{where}: there is a firewall, or they do not share that network"
            " (--interface and --port-range choose others), or it takes more"
            f" than {self._plan.patience.reach_timeout:.3g} s to answer"
            " (--connect-timeout gives it more)"
        )

    def _is_flooded(self, first: AgentConnection) -> bool:
        """Returns whether the port of rank 0 has a full queue."""
        first.say("count")
        self.wait_for(
            "count connections",
            _ANSWER_TIME,
            lambda agent: "full" in agent.listening,
            [first],
        )
        return bool(first.listening.get("full"))


def start_agent_on(
    host_ranks: HostRanks, plan: LaunchPlan, loop: AgentLoop
) -> AgentConnection:
    """Starts the agent of a host, and begins to listen to it.

    Args:
        host_ranks: `HostRanks` of the host.
        plan: `LaunchPlan` of the job.
        loop: `AgentLoop` to which the agent is added.

    Raises:
        HostsError: If the command cannot be run that reaches the host.
    """
    command = (
        remote_shell.local_agent()
        if host_ranks.local
        else plan.shell.start_agent(host_ranks.host)
    )
    try:
        agent = AgentConnection(host_ranks, start_agent(command))
    except OSError as error:
        raise HostsError(f"{command[0]}: {error.strerror}") from None
    loop.add(agent)
    agent.say(
        "hello",
        package=remote_shell.package_folder(),
        directory=plan.directory,
        command=list(plan.command),
        environment=dict(plan.environment),
        ranks=host_ranks.places,
        threads=plan.threads,
        bind=plan.bind,
        # The limit of this host is meaningless on others.
        open_files=plan.open_files if host_ranks.local else None,
        interface=plan.interface,
        ports=list(plan.ports or ()),
        silence=plan.patience.host_timeout,
        reach=plan.patience.reach_timeout,
    )
    return agent


def time_to_start(plan: LaunchPlan) -> float:
    """Returns the seconds for an agent to start."""
    timeout = plan.shell.connect_timeout
    return timeout + max(timeout, _GREETING_TIME)


def why_ended(agent: AgentConnection, shell: RemoteShell) -> str:
    """Returns why an agent has ended before it could start ranks."""
    code = agent.wait(1.0)
    agent.read_last_errors()
    told = "\n".join(f"  | {line}" for line in agent.last_lines)
    if agent.greeted:
        text = f"the agent on {agent.host} has ended (exit code {code})"
    elif any("keras_ring" in line for line in agent.last_lines):
        text = (
            f"{agent.host} has no keras_ring for {sys.executable}, or"
            " another version of it"
        )
    elif code in (126, 127):
        text = f"{agent.host} cannot run {sys.executable}"
    else:
        text = (
            f"{agent.host} cannot be reached (exit code {code}); try:"
            f" {shell.try_by_hand(agent.host)}"
        )
    return f"{text}\n{told}" if told else text


def differences(agents: Sequence[AgentConnection]) -> list[str]:
    """Returns in which facts hosts differ, line by line."""
    lines = []
    for name in host_facts.MUST_AGREE:
        values: dict[str, list[str]] = {}
        for agent in agents:
            value = str(agent.facts.get(name) or host_facts.MISSING)
            values.setdefault(value, []).append(agent.host)
        if len(values) > 1:
            told = "; ".join(
                f"{value} on {', '.join(hosts)}"
                for value, hosts in values.items()
            )
            lines.append(f"the hosts differ in {name}: {told}")
    return lines


def too_few_ports(agent: AgentConnection, plan: LaunchPlan) -> str:
    """Returns a line if a host has too few free ports of `--port-range`."""
    free = agent.facts.get("free_ports")
    wanted = agent.host_ranks.places
    if plan.min_size is not None:
        # Another one each, for the ranks that go on after a loss.
        wanted *= 2
    if free is None or free >= wanted:
        return ""
    return (
        f"{free} of the ports of --port-range {'is' if free == 1 else 'are'}"
        f" free, and its ranks listen on {wanted}"
    )
