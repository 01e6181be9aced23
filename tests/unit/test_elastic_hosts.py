"""Hosts of an elastic job, with agents that do as they are told."""

import time
from types import SimpleNamespace

import pytest

from keras_ring.launch import elastic_hosts, host_discovery, host_facts
from keras_ring.launch.elastic_hosts import ElasticHosts
from keras_ring.launch.frames import Frame
from keras_ring.launch.host_discovery import HostDiscovery
from keras_ring.launch.hosts import (
    Host,
    HostRanks,
    assign_ranks,
    parse_discovered,
)
from keras_ring.launch.patience import Patience
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.preflight import HostsError
from keras_ring.launch.usage import UsageError


class Agent:
    def __init__(self, host_ranks):
        self.host_ranks = host_ranks
        self.host = host_ranks.host
        self.facts, self.reached, self.serving = {}, {}, {}
        self.closed = self.ended = False
        self.said = []

    def say(self, kind, payload=b"", **fields):
        self.said.append((kind, fields))

    def wait(self, patience):
        return 255 if self.ended else None


class Loop:
    def __init__(self, agents):
        self.agents = agents
        self.verbs = {}

    def remove(self, agent):
        self.agents.remove(agent)


class Job:
    """A job of one host, to which others are added."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.lines = []
        self.begun, self.let_go = [], []
        self.refuses = self.address = ""
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(elastic_hosts, "time", clock)
        monkeypatch.setattr(elastic_hosts, "say", self.lines.append)
        monkeypatch.setattr(elastic_hosts, "start_agent_on", self._start)
        monkeypatch.setattr(
            elastic_hosts, "why_ended", lambda agent, shell: "not reached"
        )
        self.first = Agent(HostRanks("a", range(2), local=False))
        self.first.facts = self.facts("1.0")
        self.loop = Loop([self.first])
        self.wanted = [Host("a", 2), Host("b", 3)]
        self.hosts = ElasticHosts(
            LaunchPlan(
                size=2,
                command=("true",),
                environment={},
                min_size=1,
                max_size=4,
                patience=Patience(host_cooldown=10.0),
            ),
            self.loop,
            wanted=lambda: self.wanted,
            meet=lambda: (self.first, self.address),
            begin=self.begun.append,
            let_go=self.let_go.append,
        )

    @staticmethod
    def facts(version, **more):
        return {**dict.fromkeys(host_facts.MUST_AGREE, version), **more}

    def _start(self, host_ranks, plan, loop):
        if self.refuses:
            raise HostsError(self.refuses)
        agent = Agent(host_ranks)
        loop.agents.append(agent)
        return agent

    def follow(self, seconds=1.5):
        self.now += seconds
        self.hosts.follow()
        return self.loop.agents[-1]

    def serve(self, addresses=("10.0.0.1", "10.1.0.1"), problem=""):
        """The host of the job answers that others may try to reach it."""
        assert self.first.said[-1][0] == "serve"
        fields = {"problem": problem}
        if not problem:
            fields.update(addresses=list(addresses), port=7000)
        self.loop.verbs["serving"](self.first, Frame("serving", fields))

    def start(self):
        """Starts the agent of b, which is accepted."""
        agent = self.follow()
        agent.facts = self.facts("1.0")
        self.follow(0)
        self.serve()
        agent.reached = {"10.0.0.1": False, "10.1.0.1": True}
        self.follow(0)
        return agent


@pytest.fixture
def job(monkeypatch):
    return Job(monkeypatch)


def test_a_host_takes_ranks_once_it_reaches_the_others(job):
    agent = job.follow()
    assert agent.host == "b"
    assert agent.host_ranks.places == 3
    assert not agent.host_ranks.ranks
    assert job.hosts.places() == {job.first: 2}
    job.follow()
    assert not job.first.said
    agent.facts = job.facts("1.0")
    job.follow()
    job.serve()
    addresses = ["10.0.0.1", "10.1.0.1"]
    assert agent.said == [("reach", {"addresses": addresses, "port": 7000})]
    # It has tried one of them, in vain.
    agent.reached = {"10.0.0.1": False}
    job.follow()
    assert not job.begun
    agent.reached["10.1.0.1"] = True
    job.follow()
    assert job.begun == [agent]
    assert job.first.said[-1] == ("stop_serving", {})
    assert job.hosts.places() == {job.first: 2, agent: 3}
    assert job.loop.agents == [job.first, agent]
    assert job.lines == ["b has come; it takes 3 ranks"]


def test_a_host_that_is_not_like_the_others_takes_none(job):
    agent = job.follow()
    agent.facts = job.facts("2.0", problem="no such directory")
    job.follow()
    (line,) = job.lines
    assert line.startswith("b takes no ranks for 10 s: no such directory; the")
    assert "differ" in line
    job.follow()
    assert job.loop.agents == [job.first]


def test_a_host_that_does_not_reach_the_others_takes_none(job):
    agent = job.follow()
    agent.facts = job.facts("1.0")
    job.follow()
    job.serve()
    agent.reached = {"10.0.0.1": False, "10.1.0.1": False}
    job.follow()
    (line,) = job.lines
    assert "it does not reach a at 10.0.0.1 or 10.1.0.1" in line
    assert job.first.said[-1] == ("stop_serving", {})


def test_it_is_the_address_by_which_ranks_meet_that_counts(job):
    job.address = "10.0.0.1"
    agent = job.follow()
    agent.facts = job.facts("1.0")
    job.follow()
    job.serve()
    agent.reached = {"10.0.0.1": False, "10.1.0.1": True}
    job.follow()
    assert job.lines[-1].endswith("10 s: it does not reach a at 10.0.0.1")


def test_another_one_is_tried_if_the_host_to_reach_is_lost(job):
    agent = job.follow()
    agent.facts = job.facts("1.0")
    job.follow()
    assert job.first.said[-1][0] == "serve"
    lost, job.first = job.first, Agent(HostRanks("c", range(1), local=False))
    job.first.facts = job.facts("1.0")
    lost.ended = True
    assert not job.hosts.on_loss(lost, "it is gone")
    job.follow(0)
    job.serve()
    agent.reached = {"10.0.0.1": True, "10.1.0.1": True}
    job.follow(0)
    assert job.begun == [agent]


def test_a_host_that_does_not_answer_any_more_is_told_as_it_is(job):
    agent = job.follow()
    assert job.hosts.on_loss(agent, "it is silent")
    assert job.lines == ["b takes no ranks for 10 s: it is silent"]


def test_a_host_without_ports_takes_none(job):
    agent = job.follow()
    agent.facts = job.facts("1.0", free_ports=5)
    job.follow()
    assert job.lines == [
        "b takes no ranks for 10 s: 5 of the ports of --port-range are free,"
        " and its ranks listen on 6"
    ]


def test_an_answer_that_does_not_come_is_awaited_for_a_while(job):
    agent = job.follow()
    agent.facts = job.facts("1.0")
    job.follow()
    job.follow(60)
    assert job.lines == [
        "b takes no ranks for 10 s: it has not answered in time"
    ]
    # Another one is tried then. What comes late is nobody's.
    job.wanted.append(Host("c", 1))
    other = job.follow()
    assert other.host == "c"
    job.first.said.clear()
    job.loop.verbs["serving"](job.first, Frame("serving", {"problem": "late"}))
    other.facts = job.facts("1.0")
    job.follow()
    job.serve(problem="no port is free")
    assert job.lines[-1].endswith(
        "c takes no ranks for 10 s: a: no port is free"
    )


def test_waits_longer_each_time_until_a_rank_comes_in(job):
    for seconds in (10, 20, 40):
        agent = job.follow()
        assert agent.host == "b"
        agent.ended = True
        assert job.hosts.on_loss(agent, "it is gone")
        # It is heard of twice, by its output and by its silence.
        assert job.hosts.on_loss(agent, "it is gone")
        assert job.lines[-1] == f"b takes no ranks for {seconds} s: not reached"
        job.follow(seconds - 1.5)
        assert job.loop.agents == [job.first]
    agent = job.follow(2)
    agent.facts = job.facts("1.0")
    job.follow(0)
    job.serve()
    agent.reached = {"10.0.0.1": True, "10.1.0.1": True}
    job.follow(0)
    job.hosts.on_join(agent)
    agent.ended = True
    assert not job.hosts.on_loss(agent, "it is gone")
    job.follow(9)
    assert job.loop.agents == [job.first]
    assert job.follow(1.5).host == "b"


def test_no_more_processes_join_where_one_has_failed(job):
    agent = job.start()
    # All that were to join, of one cause.
    for _ in range(3):
        job.hosts.on_failed_joiner(agent)
    assert job.hosts.places() == {job.first: 2}
    job.follow(11)
    assert job.hosts.places() == {job.first: 2, agent: 3}


def test_a_host_that_is_not_wanted_is_let_go(job):
    agent = job.start()
    job.wanted = [Host("b", 1)]
    job.follow()
    assert job.let_go == [job.first]
    assert job.hosts.places() == {agent: 1}
    assert "a is no more among the hosts: its ranks leave" in job.lines
    # Its agent has ended as it was told to.
    job.first.closed = job.first.ended = True
    job.follow()
    assert job.loop.agents == [agent]


def test_what_an_agent_cannot_do_is_no_fault_of_the_job(job):
    agent = job.start()
    assert job.hosts.on_problem(agent, "no space left")
    assert job.hosts.places() == {job.first: 2}
    assert job.lines[-1] == "b takes no ranks for 10 s: no space left"
    assert not job.hosts.on_problem(job.first, "no space left")


def test_a_command_that_cannot_be_run_is_tried_again(job):
    job.refuses = "ssh: No such file or directory"
    job.follow()
    assert job.lines == [
        "b takes no ranks for 10 s: ssh: No such file or directory"
    ]
    job.refuses = ""
    assert job.follow(11).host == "b"


def test_hosts_of_a_program():
    text = "\n# none\nnode1:4\n  node2  # old\nnode1:2\n"
    assert parse_discovered(text) == (Host("node1", 6), Host("node2", 1))
    assert parse_discovered("") == ()
    with pytest.raises(UsageError, match="'node1 4' is not of the form"):
        parse_discovered("node1 4")


def test_hosts_without_a_rank_have_places_for_those_that_join():
    hosts = [Host("a", 2), Host("b", 8)]
    assert assign_ranks(hosts, 2, ()) == (HostRanks("a", range(2), False, 2),)
    assert assign_ranks(hosts, 2, (), most=4) == (
        HostRanks("a", range(2), False, 2),
        HostRanks("b", range(2, 2), False, 4),
    )


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(host_discovery, "say", lines.append)
    monkeypatch.setattr(host_discovery, "_PAUSE", 0.01)
    return lines


def _tell(path, text):
    """Writes a file that others read meanwhile."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def _wait(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_hosts_stay_while_the_program_fails(tmp_path, said):
    told = tmp_path / "hosts"
    _tell(told, "a:2\n")
    with HostDiscovery(f"cat {told}") as discovery:
        _wait(lambda: discovery.hosts == (Host("a", 2),))
        _tell(told, "a:2\nb\n")
        _wait(lambda: discovery.hosts == (Host("a", 2), Host("b", 1)))
        _tell(told, "a:0\n")
        _wait(lambda: len(said) == 1)
        assert "'a:0' offers no slot" in said[0]
        _tell(told, "")
        _wait(lambda: len(said) == 2)
        assert "it has printed no host" in said.pop()
        told.unlink()
        _wait(lambda: len(said) == 2)
        assert "exit code 1: cat:" in said[1]
        time.sleep(0.1)
        assert len(said) == 2
        assert discovery.hosts == (Host("a", 2), Host("b", 1))
        _tell(told, "b:3\n")
        _wait(lambda: discovery.hosts == (Host("b", 3),))


def test_a_program_that_is_not_there(said):
    with pytest.raises(UsageError, match="0 slots, and 2 are needed"):
        HostDiscovery("/no/such/program").wait_for(2, 0.05)
    assert "No such file" in said[0]
    with pytest.raises(UsageError, match="0 slots, and 1 are"):
        HostDiscovery("'").wait_for(1, 0.05)
