"""Who may measure the way to a host, and what others take from it."""

import contextlib
import errno
import os
import socket
import threading

import pytest

from keras_ring._launch_protocol import interfaces
from keras_ring._launch_protocol.interfaces import Address
from keras_ring.launcher import link_probe
from keras_ring.launcher.agent import Agent
from keras_ring.launcher.frames import Frame, FrameReader
from keras_ring.launcher.link_probe import LinkServer, measure

TOKEN = "5a" * 32
HOME = "127.0.0.1"
PATIENCE = 20.0


@pytest.fixture
def server():
    """A server on loopback."""
    made = LinkServer(interfaces.listen(HOME, None, 64), TOKEN)
    yield made
    made.close()


def strangers(server, count):
    """Returns connections that have said nothing yet."""
    return [
        socket.create_connection((HOME, server.port), PATIENCE)
        for _ in range(count)
    ]


def test_a_link_is_measured(server):
    speed = measure(HOME, server.port, TOKEN)
    assert speed.microseconds > 0
    assert speed.megabytes > 0


def test_who_does_not_know_the_token_measures_nothing(server):
    with pytest.raises(OSError):
        measure(HOME, server.port, "a5" * 32)


def test_silent_strangers_take_some_threads_and_no_more(server, monkeypatch):
    monkeypatch.setattr(link_probe, "_TIMEOUT", 10 * PATIENCE)
    before = set(threading.enumerate())
    held = strangers(server, 2 * link_probe._MAX_CONNECTIONS)
    # The oldest are closed for those that come after them.
    for connection in held[: link_probe._MAX_CONNECTIONS]:
        assert connection.recv(1) == b""
    taken = set(threading.enumerate()) - before
    assert len(taken) <= link_probe._MAX_CONNECTIONS
    assert measure(HOME, server.port, TOKEN).microseconds > 0
    for connection in held:
        connection.close()


def test_a_token_has_a_limit_however_it_comes(server, monkeypatch):
    monkeypatch.setattr(link_probe, "_TIMEOUT", 0.5)
    (one,) = strangers(server, 1)
    one.settimeout(0.1)
    closed, sent = False, 0
    with one:
        # Fewer than a token has, which take six times as long.
        while not closed and sent < 31:
            try:
                sent += one.send(b"x")
                closed = one.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
    assert closed


class ShortOfDescriptors:
    """A listener that finds no descriptor at first."""

    def __init__(self, listener):
        self._listener = listener
        self._failures = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]

    def accept(self):
        if self._failures:
            number = self._failures.pop()
            raise OSError(number, os.strerror(number))
        return self._listener.accept()

    def __getattr__(self, name):
        return getattr(self._listener, name)


def test_a_lack_of_descriptors_passes():
    listener = interfaces.listen(HOME, None, 64)
    with contextlib.closing(
        LinkServer(ShortOfDescriptors(listener), TOKEN)
    ) as server:
        assert measure(HOME, server.port, TOKEN).microseconds > 0


def test_a_server_that_is_closed_listens_no_more():
    server = LinkServer(interfaces.listen(HOME, None, 64), TOKEN)
    server.close()
    assert not server._thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOME, server.port), PATIENCE)


@pytest.fixture
def agent(monkeypatch):
    """An agent that may use two ports of one interface, and what it says."""
    monkeypatch.setattr(
        interfaces,
        "own_addresses",
        lambda: [Address("eth0", "192.0.2.1"), Address("lan", HOME)],
    )
    with socket.create_server((HOME, 0)) as taken:
        low = taken.getsockname()[1]
        read, write = os.pipe()
        hello = {"interface": "lan", "ports": [low, low + 20], "silence": 9.0}
        made = Agent(hello, read, write)
        reader = FrameReader()

        def said():
            made._sink.write_some()
            (frame,) = reader.feed(os.read(read, 1 << 16))
            return frame

        yield made, said
        for fd in (read, write):
            os.close(fd)


def test_it_listens_where_the_job_may(agent):
    made, said = agent
    made._serve(Frame("serve", {"token": TOKEN}))
    told = said()
    assert told.kind == "serving"
    assert told.fields["addresses"] == [HOME]
    low, high = made._hello["ports"]
    assert low < told.fields["port"] <= high
    assert made._link_server._listener.getsockname()[0] == HOME
    made._stop_serving(Frame("stop_serving", {}))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOME, told.fields["port"]), PATIENCE)


def test_it_is_told_where_a_port_cannot_be_opened(agent):
    made, said = agent
    made._hello["ports"] = [made._hello["ports"][0]] * 2
    made._serve(Frame("serve", {"token": TOKEN}))
    assert "in use" in said().fields["problem"]
    made._stop_serving(Frame("stop_serving", {}))


def test_it_is_told_that_a_port_is_flooded(agent, monkeypatch):
    made, said = agent
    monkeypatch.setattr("keras_ring.launcher.job.BACKLOG", 2)
    made._listen(Frame("listen", {}))
    port = said().fields["port"]
    made._count(Frame("count", {}))
    assert said().fields == {"full": False}
    # The kernel takes one more than may wait.
    held = [socket.create_connection((HOME, port), PATIENCE) for _ in range(3)]
    made._count(Frame("count", {}))
    assert said().fields == {"full": True}
    assert not interfaces.answers(HOME, port, 0.2)
    for connection in held:
        connection.close()
    interfaces.drop_waiting(made._listener)
    made._count(Frame("count", {}))
    assert said().fields == {"full": False}
    made._listener.close()
