"""Who may measure the way to a host, and what others take from it."""

import contextlib
import errno
import os
import socket
import threading

import pytest

from keras_ring.launch import link_probe
from keras_ring.launch.agent_network import HostNetwork
from keras_ring.launch.frames import Frame
from keras_ring.launch.link_probe import LinkServer, measure
from keras_ring.protocol import interfaces
from keras_ring.protocol.interfaces import Address

TOKEN = "5a" * 32
HOME = "127.0.0.1"
PATIENCE = 20.0


@pytest.fixture
def server():
    """A server on loopback."""
    made = LinkServer(interfaces.listen(HOME, None, 64), TOKEN, PATIENCE)
    yield made
    made.close()


def strangers(server, count):
    """Returns connections that have said nothing yet."""
    return [
        socket.create_connection((HOME, server.port), PATIENCE)
        for _ in range(count)
    ]


def test_a_link_is_measured(server):
    speed = measure(HOME, server.port, TOKEN, PATIENCE)
    assert speed.microseconds > 0
    assert speed.megabytes > 0


def test_who_does_not_know_the_token_measures_nothing(server):
    with pytest.raises(OSError):
        measure(HOME, server.port, "a5" * 32, PATIENCE)


def test_silent_strangers_take_some_threads_and_no_more(server):
    server._timeout = 10 * PATIENCE
    before = set(threading.enumerate())
    held = strangers(server, 2 * link_probe._MAX_CONNECTIONS)
    # The oldest are closed for those that come after them.
    for connection in held[: link_probe._MAX_CONNECTIONS]:
        assert connection.recv(1) == b""
    taken = set(threading.enumerate()) - before
    assert len(taken) <= link_probe._MAX_CONNECTIONS
    assert measure(HOME, server.port, TOKEN, PATIENCE).microseconds > 0
    for connection in held:
        connection.close()


def test_a_token_has_a_limit_however_it_comes(server):
    server._timeout = 0.5
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
        LinkServer(ShortOfDescriptors(listener), TOKEN, PATIENCE)
    ) as server:
        assert measure(HOME, server.port, TOKEN, PATIENCE).microseconds > 0


def test_a_server_that_is_closed_listens_no_more():
    server = LinkServer(interfaces.listen(HOME, None, 64), TOKEN, PATIENCE)
    server.close()
    assert not server._thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOME, server.port), PATIENCE)


@pytest.fixture
def network(monkeypatch):
    """The ports of a host that may use some of one interface."""
    monkeypatch.setattr(
        interfaces,
        "own_addresses",
        lambda: [Address("eth0", "192.0.2.1"), Address("lan", HOME)],
    )
    with socket.create_server((HOME, 0)) as taken:
        low = taken.getsockname()[1]
        ports = [low, low + 20]
        yield Network({"interface": "lan", "ports": ports, "reach": PATIENCE})


class Network:
    """A host's part in finding out how hosts reach each other."""

    def __init__(self, hello, answer_later=None):
        self.hello = hello
        self.said = []
        self.made = HostNetwork(
            hello,
            lambda kind, **fields: self.said.append((kind, fields)),
            answer_later,
        )

    def ask(self, kind, **fields):
        """Returns the answer to a question of the launcher, if there is one."""
        self.made.verbs[kind](Frame(kind, fields))
        return self.said.pop() if self.said else None


def test_it_listens_where_the_job_may(network):
    kind, told = network.ask("serve", token=TOKEN)
    assert kind == "serving"
    assert told["addresses"] == [HOME]
    low, high = network.hello["ports"]
    assert low < told["port"] <= high
    assert network.made._link_server._listener.getsockname()[0] == HOME
    network.ask("stop_serving")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOME, told["port"]), PATIENCE)


def test_it_is_told_where_a_port_cannot_be_opened(network):
    network.hello["ports"] = [network.hello["ports"][0]] * 2
    _, told = network.ask("serve", token=TOKEN)
    assert "in use" in told["problem"]
    network.ask("stop_serving")


def test_it_is_told_that_a_port_is_flooded(network, monkeypatch):
    monkeypatch.setattr("keras_ring.launch.job.BACKLOG", 2)
    _, told = network.ask("listen")
    port = told["port"]
    assert network.ask("count") == ("counted", {"full": False})
    # The kernel takes one more than may wait.
    held = [socket.create_connection((HOME, port), PATIENCE) for _ in range(3)]
    assert network.ask("count") == ("counted", {"full": True})
    assert not interfaces.answers(HOME, port, 0.2)
    for connection in held:
        connection.close()
    interfaces.drop_waiting(network.made.listener)
    assert network.ask("count") == ("counted", {"full": False})
    network.made.listener.close()


@pytest.mark.parametrize("question", ["reach", "measure"])
def test_a_host_is_given_the_time_that_the_job_has(monkeypatch, question):
    given = []

    def connect(address, timeout):
        given.append(timeout)
        raise TimeoutError

    def at_once(answer, *arguments):
        answer(*arguments)

    monkeypatch.setattr(link_probe.socket, "create_connection", connect)
    network = Network({"reach": 21.0}, at_once)
    network.ask(question, host="b", addresses=[HOME], port=1, token=TOKEN)
    assert given == [21.0]
