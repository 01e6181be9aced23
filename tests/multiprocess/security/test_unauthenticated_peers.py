"""Whoever connects without the job's key is dropped; training goes on."""

import contextlib
import signal
import stat

import psutil
import pytest

from tests.harness import run_ranks
from tests.multiprocess.failures import rank_jobs
from tests.multiprocess.failures.test_flight import wait_for_files
from tests.multiprocess.security.bad_connections import UnauthenticatedPeers

pytestmark = pytest.mark.timeout(180)
# Kinds that are rejected at once. Whoever knows the key and is wrong all the
# same is told so; those that come and go may be gone before they are seen, and
# others stay.
REJECTED = 13


def ports_of(pids):
    return sorted(
        {
            connection.laddr.port
            for pid in pids
            for connection in psutil.Process(pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
    )


def files_below(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


def test_unauthenticated_peers_do_not_disturb(tmp_path):
    """Of all kinds, at every rank; and nothing that is left has the key."""
    stop, bomb = tmp_path / "stop", tmp_path / "bomb"
    flights, key_path = tmp_path / "flights", tmp_path / "key"
    made = {}

    def disturb(running):
        try:
            knock(running)
        finally:
            stop.touch()

    def knock(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        ports = ports_of(running.pids)
        # One listener per rank; that of rank 0 serves the store as well.
        assert len(ports) == 3, ports
        with contextlib.closing(
            UnauthenticatedPeers(key_path.read_text(), bomb)
        ) as peers:
            for kind in peers.kinds:
                for port in ports:
                    peers.knock(kind, port)
            made.update(peers.counts)
            running.send(0, signal.SIGUSR1)
            wait_for_files(flights, ["flight.0.*.json"])

    result = run_ranks(
        rank_jobs.train_until,
        3,
        args=(str(stop), str(key_path)),
        env={
            "KERAS_RING_LOG_LEVEL": "debug",
            "KERAS_RING_FLIGHT_DIRECTORY": str(flights),
        },
        on_start=disturb,
        deadline=120,
    )
    steps = [value[0] for value in result.values]
    rejected = [value[1] for value in result.values]
    assert len(made) >= 12
    assert set(made.values()) == {3}
    assert min(steps) == max(steps) > 5
    assert min(rejected) >= REJECTED, rejected
    assert not bomb.exists()
    left = [rank.stdout + rank.stderr for rank in result.ranks]
    for path in files_below(flights):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        left.append(path.read_text())
    assert "refused a connection" in left[0]
    key = key_path.read_text()
    assert len(key) == 64
    assert not any(key in text for text in left)


def test_unauthenticated_peers_cannot_keep_a_job_from_starting(tmp_path):
    """They come before and while the ranks meet, and stay silent."""
    opened = []

    def disturb(running):
        found = 0
        while found < 2:
            try:
                ports = ports_of(running.pids)
            except psutil.NoSuchProcess:
                break
            for port in ports[:1]:
                opened.append(UnauthenticatedPeers("", tmp_path / "bomb"))
                for kind in ("silence", "half an opening", "reset") * 3:
                    opened[-1].knock(kind, port)
                found += 1

    result = run_ranks(
        rank_jobs.train_for, 2, args=(1.0,), on_start=disturb, deadline=90
    )
    for peers in opened:
        peers.close()
    assert result.values[0][0] >= 1
