"""The launcher's loop over agents, with hosts that are pipes."""

import fcntl
import os
import resource
import sys
import time

import pytest

from benchmarks.idle_agents import PretendedHost
from keras_ring.launch.agent_loop import AgentLoop
from keras_ring.launch.frames import PULSE, FrameReader
from keras_ring.launch.output import Sink
from keras_ring.launch.patience import Patience
from keras_ring.launch.running_clock import RunningClock

# Seconds in which what is waited for happens on any machine.
PATIENCE = 30.0
SILENCE = Patience.host_timeout


class Cluster:
    """Hosts, and the loop over them."""

    def __init__(self, count):
        self.lost = []
        self.deaf = 0
        self.read, self.write = os.pipe()
        self.sink = Sink(self.write)
        self.loop = AgentLoop(
            (self.sink, self.sink),
            on_signal=lambda number: None,
            on_loss=lambda agent, why: self.lost.append((agent.host, why)),
            on_deaf=lambda: None,
        )
        self.hosts = [PretendedHost(number) for number in range(count)]
        for host in self.hosts:
            self.loop.add(host.connection)
            host.greet()

    def __enter__(self):
        self.loop.__enter__()
        self.step_until(
            lambda: all(host.connection.greeted for host in self.hosts)
        )
        return self

    def __exit__(self, *error):
        self.loop.__exit__(*error)
        for host in self.hosts:
            host.connection.end(0.0)
            host.close()
        for fd in (self.read, self.write):
            os.close(fd)

    def step_until(self, happened):
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, "it did not happen"
            self.loop.step(time.monotonic() + 0.02)

    def hear(self, hosts):
        """Has these hosts say one after the other that they live."""
        heard = []
        self.loop.verbs["alive"] = lambda agent, frame: heard.append(agent)
        for count, host in enumerate(hosts, start=1):
            host.say("alive", time=0.0)
            self.step_until(lambda count=count: len(heard) == count)


@pytest.fixture
def cluster():
    """Makes clusters."""
    with Cluster(4) as made:
        yield made


def work_per_message(count, monkeypatch):
    """Returns calls of functions, and of the selector, for each message."""
    with Cluster(count) as cluster:
        # The pulse speaks from another thread, whose calls are not counted.
        selector = cluster.loop._events._selector
        changes = []
        for name in ("register", "unregister", "modify"):
            monkeypatch.setattr(
                selector, name, lambda *a, n=name, **k: changes.append(n)
            )
        calls = 0

        def profile(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            cluster.hear(cluster.hosts[:8] * 10)
        finally:
            sys.setprofile(None)
        monkeypatch.undo()
        assert not cluster.lost
        return calls / 80, len(changes)


def test_a_message_is_as_much_work_whatever_the_number_of_hosts(monkeypatch):
    few, changes = work_per_message(8, monkeypatch)
    assert changes == 0
    many, changes = work_per_message(128, monkeypatch)
    assert changes == 0
    assert many < 1.5 * few


class Time:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def moved(cluster):
    """The time that the loop of a cluster goes by."""
    moved = Time()
    cluster.loop._clock = RunningClock(PULSE, moved)
    cluster.loop._begin_anew()
    return moved


def pass_time(cluster, moved, seconds, speaking):
    """Lets time pass as it does: the loop looks several times a second."""
    for _ in range(round(seconds / 0.25)):
        moved.now += 0.25
        cluster.loop.step(time.monotonic())
        cluster.hear(speaking)


def test_a_silent_host_is_lost(cluster, moved):
    pass_time(cluster, moved, SILENCE - 0.25, cluster.hosts[1:])
    assert not cluster.lost
    pass_time(cluster, moved, 0.25, cluster.hosts[1:])
    (lost,) = cluster.lost
    assert lost == (
        "host0",
        f"nothing was heard from it for {SILENCE} s; it or its network is gone"
        " (--host-timeout gives it more time)",
    )
    # Once, and no other.
    pass_time(cluster, moved, 2 * SILENCE, cluster.hosts[1:])
    assert len(cluster.lost) == 1


def test_a_launcher_that_was_stopped_begins_to_wait_anew(cluster, moved):
    pass_time(cluster, moved, SILENCE - 0.25, ())
    moved.now += 3600.0
    cluster.loop.step(time.monotonic())
    assert not cluster.lost
    # The hosts may go on later than the launcher.
    pass_time(cluster, moved, SILENCE - 0.25, ())
    assert not cluster.lost
    # One that does not is found.
    cluster.hear(cluster.hosts[1:])
    pass_time(cluster, moved, 0.25, cluster.hosts[1:])
    assert [host for host, _ in cluster.lost] == ["host0"]


def test_a_disk_that_holds_the_launcher_up_is_nobodys_silence(cluster, moved):
    def slow(agent, frame):
        moved.now += 60.0

    cluster.loop.verbs["output"] = slow
    cluster.hosts[0].say("output")
    cluster.loop.step(time.monotonic() + PATIENCE)
    assert moved.now >= 60.0
    assert not cluster.lost


def test_output_that_nobody_takes_holds_hosts_up(cluster, moved):
    heard = []
    cluster.loop.verbs["output"] = lambda agent, frame: heard.append(agent)
    cluster.sink.put(b"x" * (2 << 20))
    cluster.hosts[0].say("output")
    for _ in range(40):
        moved.now += 0.5
        cluster.loop.step(time.monotonic())
    # Not heard, and not lost.
    assert not heard
    assert not cluster.lost
    # Unless the end of the job is urgent.
    cluster.loop.urgent = True
    cluster.step_until(lambda: heard)
    cluster.loop.urgent = False
    heard.clear()
    cluster.hosts[0].say("output")
    cluster.loop.step(time.monotonic())
    assert not heard
    os.set_blocking(cluster.read, False)
    taken = 0
    while taken < 2 << 20:
        cluster.loop.step(time.monotonic())
        taken += len(os.read(cluster.read, 1 << 20))
    cluster.step_until(lambda: heard)
    assert not cluster.lost


def test_what_a_pipe_does_not_take_at_once_goes_out_later(cluster):
    host = cluster.hosts[1]
    cluster.loop.say("file", bytes(3_000_000), name="x")
    reader, got = FrameReader(), []

    def arrived():
        got.extend(reader.feed(host.heard()))
        return any(frame.kind == "file" for frame in got)

    cluster.step_until(arrived)
    (file,) = [frame for frame in got if frame.kind == "file"]
    assert file.payload == bytes(3_000_000)
    # The others take nothing, and hold nobody up.
    assert not cluster.hosts[0].connection.sink.empty


def test_a_job_of_so_many_hosts_that_select_takes_none_of_them(cluster):
    """Numbers of descriptors from 1,024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("descriptors from 1,024 on are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        host = cluster.hosts[2]
        sink = host.connection.sink
        sink.fd = fcntl.fcntl(sink.fd, fcntl.F_DUPFD_CLOEXEC, 1500)
        # By the pulse, from its thread.
        reader = FrameReader()
        end = time.monotonic() + PATIENCE
        while not (frames := reader.feed(host.heard())):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert frames[0].kind == "alive"
        assert cluster.loop._pulse.is_alive()
        os.close(sink.fd)
        host.connection.silence()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_agents_that_end_are_told_once(cluster):
    os.close(cluster.hosts[3].stdout)
    cluster.step_until(lambda: cluster.lost)
    assert cluster.lost == [
        ("host3", "its agent, or ssh to it, has ended"),
    ]
    cluster.hosts[3].stdout = os.open(os.devnull, os.O_WRONLY)


def test_the_end_waits_for_all_agents_that_run(cluster):
    def leave(agent, frame):
        agent.closed = True

    cluster.loop.verbs["closed"] = leave
    for host in cluster.hosts:
        host.say("closed", leftover=0)
        os.close(host.stdout)
        host.stdout = os.open(os.devnull, os.O_WRONLY)
    cluster.loop.close(SILENCE, lambda: False)
    assert not cluster.lost
    assert all(host.connection.ended for host in cluster.hosts)
