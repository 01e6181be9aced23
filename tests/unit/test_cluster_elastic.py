"""The launcher of an elastic job on several hosts, and agents that it tells."""

import signal

import pytest

from keras_ring.launch.cluster import Cluster
from keras_ring.launch.elastic.messages import (
    MemberReport,
    Stand,
    encode_report,
)
from keras_ring.launch.frames import Frame
from keras_ring.launch.hosts import HostRanks
from keras_ring.launch.plan import LaunchPlan
from tests.unit.test_elastic_hosts import Agent


class Job:
    """Two ranks on each of two hosts; a third one has two places."""

    def __init__(self, monkeypatch, **options):
        self.lines = []
        for name in ("cluster", "elastic_ranks", "elastic_hosts"):
            monkeypatch.setattr(
                f"keras_ring.launch.{name}.say", self.lines.append
            )
        hosts = (
            HostRanks("a", range(2), False, 2),
            HostRanks("b", range(2, 4), False, 2),
            HostRanks("c", range(4, 4), False, 2),
        )
        plan = LaunchPlan(
            size=4,
            command=("true",),
            environment={},
            host_ranks=hosts,
            **{"min_size": 1, "max_size": 4, **options},
        )
        self.cluster = Cluster(plan)
        self.loop = self.cluster._loop
        self.agents = list(map(Agent, hosts))
        self.loop.agents = list(self.agents)
        self.loop.remove = self.loop.agents.remove
        self.loop.step = lambda until: None
        self.loop.say = lambda kind, **fields: None
        self.cluster._start("10.0.0.1:7000")
        self.forget()

    def hear(self, agent, kind, payload=b"", **fields):
        self.loop.verbs[kind](self.agents[agent], Frame(kind, fields, payload))

    def end(self, agent, rank, returncode):
        self.hear(
            agent,
            "ended",
            rank=rank,
            pid=100 + rank,
            returncode=returncode,
            seen=0.0,
            error=None,
            started=True,
            ended_first=True,
        )

    def forget(self):
        for agent in self.agents:
            agent.said.clear()

    def said(self, agent, kind):
        told = self.agents[agent].said
        return [fields["rank"] for said, fields in told if said == kind]

    @property
    def running(self):
        return self.cluster._alive

    @property
    def ends(self):
        return bool(self.cluster._ending.deadline or self.cluster._ending.begun)


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(Agent, "here", lambda self, time: time, raising=False)
    return Job(monkeypatch)


def test_others_join_on_the_host_with_the_most_free_slots(job):
    job.end(1, 2, -9)
    assert job.said(2, "join") == [4]
    job.end(1, 3, -9)
    # Each of these has two free slots or one by now.
    assert job.said(1, "join") == [5]
    assert job.running == {0, 1, 4, 5}
    assert not job.ends


def test_an_agent_that_cannot_start_ranks_has_none_that_run(job):
    job.end(1, 2, -9)
    assert job.running == {0, 1, 3, 4}
    job.hear(2, "problem", text="no space left")
    # Another one starts elsewhere.
    assert job.said(1, "join") == [5]
    assert job.running == {0, 1, 3, 5}
    job.cluster._step()
    assert job.agents[2] not in job.loop.agents
    assert not job.ends


def test_a_host_on_which_none_can_start_is_left_alone(job):
    job.end(1, 2, -9)
    for number in (4, 5, 6, 7):
        job.hear(2 if number == 4 else 1, "cannot_join", rank=number, why="no")
        if number == 4:
            assert job.said(1, "join") == [5]
    # Neither takes one for now, and no failure of the job has come of it.
    assert job.running == {0, 1, 3}
    assert not job.ends


def test_those_that_end_with_a_host_that_goes_are_no_failures(job):
    job.end(0, 0, -9)
    assert job.said(2, "join") == [4]
    job.hear(2, "asked", number=signal.SIGTERM)
    job.cluster._decides_at = 0.0
    job.cluster._step()
    assert job.said(2, "kill") == [4]
    job.end(2, 4, -9)
    job.cluster._step()
    assert job.agents[2].said[-1] == ("close", {})
    assert job.said(0, "join") == [5]
    # Others may come as often as before.
    assert not any("which was to join" in line for line in job.lines)
    assert job.cluster._elastic._members._joiners._failures == 0


def test_a_signal_to_all_agents_ends_the_job(job):
    for agent in range(3):
        job.hear(agent, "asked", number=signal.SIGTERM)
    assert not job.ends
    job.cluster._decides_at = 0.0
    job.cluster._step()
    assert job.cluster._ending.stop_signal == signal.SIGTERM
    assert job.said(0, "kill") == job.said(1, "kill") == []
    assert "a: SIGTERM to its agent ends the job" in job.lines


def test_a_failure_on_a_host_that_goes_is_one(job):
    job.hear(1, "asked", number=signal.SIGTERM)
    job.cluster._decides_at = 0.0
    job.cluster._step()
    # It has ended well by itself, and the other one has not.
    job.end(1, 2, 0)
    assert not job.ends
    assert not job.cluster._ends[2].left_behind
    job.end(1, 3, 1)
    assert job.ends
    assert not job.cluster._ends[3].left_behind


def test_a_job_that_ends_waits_for_nothing_else(job):
    job.hear(1, "asked", number=signal.SIGTERM)
    job.cluster._decides_at = 0.0
    job.cluster._step()
    assert job.said(1, "kill") == []
    # The user ends it while the ranks of that host are to leave.
    job.cluster._on_signal(signal.SIGINT)
    job.cluster._leaving[job.agents[1]] = 0.0
    waited = []
    job.loop.step = waited.append
    job.cluster._step()
    assert waited == [job.cluster._ending.deadline]


def test_hosts_must_reach_the_address_by_which_ranks_meet(job):
    assert job.cluster._meeting_place() == (job.agents[0], "10.0.0.1")
    report = MemberReport(0, "10.9.0.2", 7000)
    job.hear(1, "member", encode_report(report), rank=2)
    for rank in (0, 1):
        job.end(0, rank, -9)
    assert job.cluster._meeting_place() == (job.agents[1], "10.9.0.2")
    # Who waits to come in has no address by which others meet.
    joins = MemberReport(0, "10.9.0.3", 7000, stand=Stand.JOINS)
    job.hear(2, "member", encode_report(joins), rank=4)
    assert job.cluster._elastic.address_of(4) == ""


def test_the_loss_of_too_many_ends_the_job(monkeypatch):
    monkeypatch.setattr(Agent, "here", lambda self, time: time, raising=False)
    job = Job(monkeypatch, min_size=3, max_size=None)
    job.cluster._on_loss(job.agents[1], "it is gone")
    assert job.ends
    assert "b is lost: it is gone" in job.lines
    assert (
        "ranks 2 and 3 were lost with their host, and 2 of 4 ranks are left,"
        " fewer than --min-np 3" in job.lines
    )
