"""Hosts whose addresses and names are not as simple as those of the lab."""

import contextlib
import re
import subprocess
import sys

import pytest

from tests.lab.lab import ROOT

# Another file may have the lab for a while.
pytestmark = pytest.mark.timeout(90, func_only=True)
SUMS = str(ROOT / "tests" / "hosts" / "rank_sums.py")


def ranks(lab, jobs, where, *, through=(), **environment):
    """Runs a rank on h0 and one on h1, as an engine would; what they print."""
    started = [
        jobs.start(
            lab.on(f"h{rank}", *through, sys.executable, SUMS),
            KERAS_RING_SIZE="2",
            KERAS_RING_RANK=str(rank),
            KERAS_RING_RENDEZVOUS=where,
            KERAS_RING_JOB_KEY="ab" * 32,
            **environment,
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    return [out for out, _ in ended]


@contextlib.contextmanager
def addresses(lab, *, ipv4=True):
    """Gives h0 and h1 addresses of IPv6, and takes those of IPv4."""

    def ip(host, *words):
        subprocess.run(lab.on(f"h{host}", "ip", *words), check=True)

    for host in range(2):
        more = ("dev", "eth0")
        ip(host, "addr", "add", f"fd77::{host + 1}/64", *more, "nodad")
        if not ipv4:
            ip(host, "addr", "del", f"10.77.0.{host + 1}/16", *more)
    try:
        yield
    finally:
        for host in range(2):
            ip(host, "addr", "del", f"fd77::{host + 1}/64", "dev", "eth0")
            if not ipv4:
                ip(
                    host,
                    *("addr", "add", f"10.77.0.{host + 1}/16", "dev", "eth0"),
                )


TWO_HOSTS = ["sum=1.0 local=0/1 cross=0/2", "sum=1.0 local=0/1 cross=1/2"]


def places(printed):
    return [out.strip().partition(" ")[2] for out in printed]


def test_ipv6_alone(lab, jobs):
    with addresses(lab, ipv4=False):
        printed = ranks(lab, jobs, "[fd77::1]:29441")
    assert places(printed) == TWO_HOSTS


@pytest.mark.long("hosts")
def test_launcher_on_ipv6(lab, jobs):
    with addresses(lab):
        done = jobs.run(
            lab.run(
                *("kr-h0,kr-h1", "--interface", "fd77::/64"),
                *("--", sys.executable, SUMS),
            )
        )
    assert done.returncode == 0, done.stderr
    assert "cross=1/2" in done.stdout


@pytest.mark.long("hosts")
def test_one_of_several_addresses(lab, jobs):
    """The first is nobody's, and the second leads nowhere."""
    printed = ranks(lab, jobs, "nobody.invalid,10.99.0.1,10.77.0.1:29442")
    assert places(printed) == TWO_HOSTS


@pytest.mark.long("hosts")
def test_interface_by_network(lab, jobs):
    with addresses(lab):
        printed = ranks(
            *(lab, jobs, "kr-h0:29443"), KERAS_RING_INTERFACE="fd77::/64"
        )
    assert places(printed) == TWO_HOSTS


def test_hosts_of_one_name(lab, jobs):
    """As of one image: they share no memory for that."""
    printed = ranks(
        *(lab, jobs, "10.77.0.1:29444"),
        through=(
            *("unshare", "--uts", "sh", "-c"),
            *('hostname localhost; exec "$@"', "sh"),
        ),
    )
    assert [re.match(r"\S+", out)[0] for out in printed] == ["localhost"] * 2
    assert places(printed) == TWO_HOSTS


def test_ranks_in_any_order(lab, jobs):
    """Each second rank is on the other host, and one host has one more."""
    hosts = [0, 1, 0, 1, 0]
    started = [
        jobs.start(
            lab.on(f"h{host}", sys.executable, SUMS),
            KERAS_RING_SIZE="5",
            KERAS_RING_RANK=str(rank),
            KERAS_RING_RENDEZVOUS="kr-h0:29445",
            KERAS_RING_JOB_KEY="ab" * 32,
        )
        for rank, host in enumerate(hosts)
    ]
    ended = [process.communicate(timeout=80) for process in started]
    assert {process.returncode for process in started} == {0}, ended
    assert [out.strip() for out, _ in ended] == [
        "kr-h0 sum=10.0 local=0/3 cross=0/2",
        "kr-h1 sum=10.0 local=0/2 cross=1/2",
        "kr-h0 sum=10.0 local=1/3 cross=0/2",
        "kr-h1 sum=10.0 local=1/2 cross=1/2",
        "kr-h0 sum=10.0 local=2/3 cross=0/1",
    ]
