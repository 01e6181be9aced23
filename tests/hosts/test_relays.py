"""Ranks of a host that reach rank 0 by one of them."""

import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.lab.lab import ROOT

# Another file may have the lab for a while.
pytestmark = [
    pytest.mark.timeout(120, func_only=True),
    pytest.mark.long("hosts"),
]
SUMS = str(ROOT / "tests" / "hosts" / "rank_sums.py")


@pytest.fixture
def rank(lab, jobs):
    """Starts ranks by hand, rank 0 on h0 and the others on h1."""

    def start(number, size, seconds=60):
        return jobs.start(
            lab.on(f"h{min(number, 1)}", sys.executable, SUMS),
            KERAS_RING_RANK=str(number),
            KERAS_RING_SIZE=str(size),
            KERAS_RING_RENDEZVOUS="10.77.0.1:29477",
            KERAS_RING_JOB_KEY="cd" * 32,
            KERAS_RING_START_TIMEOUT=str(seconds),
        )

    return start


def wait_for_the_relay(process, clients=0):
    """Returns the id of the rank that is the relay, once it has so many.

    The name of its socket is also that of each connection to it.
    """
    end = time.monotonic() + 40
    while time.monotonic() < end:
        *_, pid = with_children(process.pid)
        with contextlib.suppress(OSError):
            sockets = Path(f"/proc/{pid}/net/unix").read_text()
            if sockets.count("@keras_ring-relay-") > clients:
                return pid
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"{clients} ranks have not come to the relay")


def with_children(pid):
    """Yields a process and those that it has started, the last one last."""
    yield pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(OSError):
        for child in children.read_text().split():
            yield from with_children(int(child))


def lines(*processes):
    ended = [process.communicate(timeout=60) for process in processes]
    assert all(process.returncode == 0 for process in processes), ended
    return [re.search("sum=.*", out)[0] for out, _ in ended]


def test_another_rank_takes_the_place_of_a_relay(rank):
    relay = rank(1, 4)
    os.kill(wait_for_the_relay(relay), signal.SIGKILL)
    relay.wait(timeout=20)
    assert lines(*(rank(number, 4) for number in range(4))) == [
        "sum=6.0 local=0/1 cross=0/2",
        "sum=6.0 local=0/3 cross=1/2",
        "sum=6.0 local=1/3 cross=0/1",
        "sum=6.0 local=2/3 cross=0/1",
    ]


def test_a_relay_that_dies_while_others_wait_by_it(rank):
    relay = rank(1, 4)
    wait_for_the_relay(relay)
    others = [rank(2, 4), rank(3, 4)]
    pid = wait_for_the_relay(relay, clients=2)
    os.kill(pid, signal.SIGKILL)
    relay.wait(timeout=20)
    assert lines(rank(0, 4), rank(1, 4), *others)[2:] == [
        "sum=6.0 local=1/3 cross=0/1",
        "sum=6.0 local=2/3 cross=0/1",
    ]


def test_a_relay_that_stands_still_is_named(rank):
    zero, relay = rank(0, 4, 20), rank(1, 4, 20)
    wait_for_the_relay(relay, clients=1)  # itself
    other = rank(2, 4, 12)
    pid = wait_for_the_relay(relay, clients=2)
    try:
        time.sleep(1)  # it joins
        os.kill(pid, signal.SIGSTOP)
        _, err = other.communicate(timeout=40)
        assert "lost rank 1, by which this rank reaches rank 0," in err, err
        _, err = zero.communicate(timeout=40)
        assert "of 4 did not join in time" in err, err
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_way_of_a_relay_is_encrypted(lab, jobs):
    done = jobs.run(
        lab.run("kr-h0:1,kr-h1:3", "--tls", "--", sys.executable, SUMS)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum=6.0") == 4
