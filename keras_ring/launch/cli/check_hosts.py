"""`keras-ring check -H`: checks of several hosts and of their network."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from keras_ring.launch import host_facts, job, open_files
from keras_ring.launch.agent_connection import AgentConnection
from keras_ring.launch.agent_loop import AgentLoop
from keras_ring.launch.frames import Frame
from keras_ring.launch.output import Sink
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.preflight import HostsError, Preflight
from keras_ring.launch.usage import say

_ANSWER_TIME = 20.0
_LEAVING_TIME = 5.0
# Seconds by which clocks may differ, because times of files of several hosts
# are compared.
_MAX_SKEW = 1.0
# With more hosts, each host is measured with the next one only.
_ALL_PAIRS = 8
_SHOWN = (
    *host_facts.MUST_AGREE,
    "interpreter",
    "cpu",
    "cores",
    "memory_gib",
    "gpus",
    "gpu_driver",
    "open_files",
    "free_ports",
)
# Facts that may differ, though results may then differ in their last bits.
_MAY_DIFFER = ("cpu", "gpus", "gpu_driver")


@dataclass
class HostsReport:
    """The findings of a check of hosts.

    Args:
        facts: Dictionary of the facts of each host.
        links: List of the measurements of pairs of hosts.
        problems: List of the reasons why a job cannot run there; empty if it
            can.
        advice: List of further findings.
    """

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)


class _Check:
    """The check of the hosts of a plan."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        self._interrupted = False
        self._report = HostsReport()
        self._measured: dict[tuple[str, str], dict[str, Any]] = {}
        # For each host, the port and addresses to measure, or the problem.
        self._serving: dict[str, Mapping[str, Any]] = {}
        self._lost: list[str] = []

    def run(self) -> HostsReport:
        loop = AgentLoop(
            (Sink(1), Sink(2)),
            on_signal=self._on_signal,
            on_loss=lambda agent, why: self._lost.append(
                f"{agent.host}: {why}"
            ),
            on_deaf=lambda: None,
        )
        loop.verbs.update(
            serving=self._on_serving,
            measured=self._on_measured,
            closed=self._on_closed,
        )
        with loop:
            preflight = Preflight(self._plan, loop, lambda: self._interrupted)
            try:
                preflight.gather()
                if not self._interrupted:
                    self._report.problems += preflight.differences()
                    self._note_facts(loop.agents)
                    self._measure(preflight, loop.agents)
            except HostsError as error:
                self._report.problems += str(error).splitlines()
            finally:
                loop.close(_LEAVING_TIME, lambda: self._interrupted)
        if self._interrupted:
            self._report.problems.append("interrupted")
        return self._report

    def _on_signal(self, signum: int) -> None:
        self._interrupted = True

    def _on_serving(self, agent: AgentConnection, frame: Frame) -> None:
        self._serving[agent.host] = frame.fields

    def _on_measured(self, agent: AgentConnection, frame: Frame) -> None:
        self._measured[agent.host, frame.fields["host"]] = dict(frame.fields)

    def _on_closed(self, agent: AgentConnection, frame: Frame) -> None:
        agent.closed = True

    def _note_facts(self, agents: Sequence[AgentConnection]) -> None:
        for agent in agents:
            facts = {
                name: value
                for name, value in agent.facts.items()
                if name not in ("time", "problem")
            }
            # The clock of this host is the reference.
            facts["clock"] = round(-(agent.skew or 0.0), 3)
            self._report.facts[agent.host] = facts
            first = next(iter(self._report.facts.values()))
            if facts["cpu"] != first["cpu"]:
                self._report.advice.append(
                    f"{agent.host}: its processor ({facts['cpu']}) is not that"
                    f" of the first host ({first['cpu']}); equal sums may"
                    " differ in their last bits"
                )
            if abs(facts["clock"]) > _MAX_SKEW:
                self._report.advice.append(
                    f"{agent.host}: its clock differs by {facts['clock']:+.1f}"
                    " s from that of this host"
                )

    def _measure(
        self, preflight: Preflight, agents: Sequence[AgentConnection]
    ) -> None:
        token = job.new_key()
        seconds = max(_ANSWER_TIME, preflight.answer_time)
        for agent in agents:
            agent.say("serve", token=token)
        preflight.wait_for(
            "open a port", seconds, lambda agent: agent.host in self._serving
        )
        closed = [
            f"{host}: {told['problem']}"
            for host, told in self._serving.items()
            if told["problem"]
        ]
        if closed:
            self._report.problems += closed
            return
        # One after the other, because they share the network.
        for one, other in _pairs(agents):
            if self._interrupted:
                return
            pair = (one.host, other.host)
            addresses = self._serving[other.host]["addresses"]
            one.say(
                "measure",
                host=other.host,
                addresses=addresses,
                port=self._serving[other.host]["port"],
                token=token,
            )
            preflight.wait_for(
                f"reach {other.host}",
                # It tries the addresses one after the other.
                seconds + len(addresses) * self._plan.patience.reach_timeout,
                lambda agent, pair=pair: pair in self._measured,  # type: ignore[misc]
                [one],
            )
            self._note_link(*pair)
        for agent in agents:
            agent.say("stop_serving")

    def _note_link(self, one: str, other: str) -> None:
        found = self._measured.get((one, other))
        if found is None:
            return
        found.pop("host")
        self._report.links.append({"from": one, "to": other, **found})
        if "problem" in found:
            self._report.problems.append(
                f"{one} does not reach {other}: {found['problem']}"
            )


def _pairs(
    agents: Sequence[AgentConnection],
) -> list[tuple[AgentConnection, AgentConnection]]:
    count = len(agents)
    if count <= _ALL_PAIRS:
        return [
            (one, other) for one in agents for other in agents if one != other
        ]
    return [(agents[i], agents[(i + 1) % count]) for i in range(count)]


def run(plan: LaunchPlan, *, as_json: bool) -> int:
    """Checks the hosts of a plan, and prints facts, differences and links.

    Args:
        plan: `LaunchPlan` with the hosts.
        as_json: Boolean, whether to print one JSON object instead of text.

    Returns:
        The exit code: 0 if a job can run there, else 1.

    Raises:
        UsageError: If this process may not open as many files as it needs.
    """
    with open_files.room(ranks=0, hosts=len(plan.host_ranks)) as before:
        report = _Check(replace(plan, open_files=before)).run()
    ready = not report.problems
    if as_json:
        print(json.dumps({"ready": ready, **asdict(report)}))
        return 0 if ready else 1
    for line in _lines(report):
        print(line)
    for line in report.problems:
        say(f"problem: {line}")
    for line in report.advice:
        say(f"advice: {line}")
    print(
        "a job can run on these hosts"
        if ready
        else "a job cannot run on these hosts"
    )
    return 0 if ready else 1


def _lines(report: HostsReport) -> list[str]:
    """Returns the table of facts, and a line for each pair of hosts."""
    hosts = list(report.facts)
    rows = [["", *hosts, ""]]
    for name in _SHOWN if hosts else ():
        facts = [report.facts[host].get(name) for host in hosts]
        if all(fact is None for fact in facts):
            continue
        values = [
            host_facts.MISSING if fact is None else str(fact) for fact in facts
        ]
        told = name in (*host_facts.MUST_AGREE, *_MAY_DIFFER)
        differs = told and len(set(values)) > 1
        rows.append([name, *values, "<- differs" if differs else ""])
    if hosts:
        clocks = [f"{report.facts[host]['clock']:+.3f} s" for host in hosts]
        rows.append(["clock", *clocks, ""])
        there = [
            ", ".join(
                " ".join(each) for each in report.facts[host]["addresses"]
            )
            for host in hosts
        ]
        rows.append(["addresses", *there, ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    for link in report.links:
        if "problem" not in link:
            lines.append(
                f"{link['from']} -> {link['to']}: round trip"
                f" {link['microseconds']:.0f} us, {link['megabytes']:.0f} MB/s"
                f" by {link['address']}"
            )
    return lines
