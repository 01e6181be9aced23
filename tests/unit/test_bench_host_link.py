"""What plain TCP carries between hosts, and what follows from it."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from keras_ring.bench import plain_tcp
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.plain_tcp import Endpoint, Neighbours

TOKEN = b"t" * 32


def test_the_bound_of_a_link():
    # Of two hosts, all bytes go one way, and as many the other.
    assert HostLink(2, gb_s=1.25).bound_us(10**6) == pytest.approx(800.0)
    assert HostLink(4, gb_s=1.25).bound_us(10**6) == pytest.approx(1200.0)


def test_what_plain_tcp_costs_at_least():
    assert HostLink(2, 1.25, cpu_s_per_gb=2.0).bound_cpu_s_per_gb == 2.0
    assert HostLink(4, 1.25, cpu_s_per_gb=2.0).bound_cpu_s_per_gb == 3.0
    assert HostLink(4, 1.25).bound_cpu_s_per_gb is None


def test_one_host_has_no_bound():
    assert HostLink().bound_us(10**6) is None
    assert HostLink(2, problem="no way").bound_us(10**6) is None


@pytest.fixture
def make():
    """Makes hosts, which are all this one; they know it as 127.0.0.1."""
    made = []

    def hosts(count, token=TOKEN):
        new = [Neighbours(token) for _ in range(count)]
        made.extend(new)
        endpoints = [
            Endpoint(("127.0.0.1",), host.listen().port) for host in new
        ]
        return new, endpoints

    yield hosts
    for host in made:
        host.close()


def on_all(hosts, function):
    """Returns what the function returns for each host, all at once."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(function, range(len(hosts))))


@pytest.mark.parametrize("count", [2, 3])
def test_hosts_stream_in_a_ring(make, count):
    hosts, endpoints = make(count)
    for _ in range(2):
        on_all(
            hosts, lambda i: hosts[i].connect(endpoints[(i + 1) % len(hosts)])
        )
        streams = on_all(hosts, lambda i: hosts[i].stream(1 << 17, 0.2))
        for stream in streams:
            assert 0.001 < stream.gb_s < 1000
            # No more than two threads can use.
            assert 0 < stream.cpu_s_per_gb < 4 / stream.gb_s


def test_an_endpoint_has_the_addresses_that_are_asked_for(make):
    (host,), _ = make(1)
    own = host.listen().addresses
    if not own:
        pytest.skip("this host has no address but loopback's")
    assert host.listen(own[-1]).addresses == (own[-1],)


def test_the_port_is_of_the_range(make):
    (host,), _ = make(1)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            host.listen("", range(port, port + 1))
    assert host.listen("", range(port, port + 1)).port == port


def test_the_other_addresses_are_tried(make):
    hosts, endpoints = make(2)
    # Nobody is there: reserved for documentation of a broken route, refused.
    several = Endpoint(("0.0.0.1", "127.0.0.1"), endpoints[1].port)
    on_all(hosts, lambda i: hosts[i].connect((several, endpoints[0])[i]))


def test_a_host_that_is_not_reached(make):
    (host,), _ = make(1)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectionError, match=rf"127\.0\.0\.1 port {port}"):
        host.connect(Endpoint(("127.0.0.1",), port))


def test_a_stranger_is_not_the_host_before(make, monkeypatch):
    monkeypatch.setattr(plain_tcp, "_TIMEOUT", 0.5)
    (host,), (endpoint,) = make(1)
    (other,), _ = make(1, token=b"x" * 32)

    def come():
        with pytest.raises(TimeoutError):
            other.connect(endpoint)

    stranger = threading.Thread(target=come)
    stranger.start()
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        port = elsewhere.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            host.connect(Endpoint(("127.0.0.1",), port))
        assert time.monotonic() - began < 5
    stranger.join()
