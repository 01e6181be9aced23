"""Whoever connects without the job's key is dropped; training goes on."""

import signal
import stat
from pathlib import Path

import psutil
import pytest

from tests.harness import run_ranks
from tests.multiprocess import rank_jobs
from tests.multiprocess.bad_connections import Strangers, job_key
from tests.multiprocess.test_flight import wait_for_files

pytestmark = pytest.mark.timeout(180)
# Whoever knows the key and is wrong all the same is told so, not rejected;
# those that come and go may be gone before they are seen.
KEYLESS = 16


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


def test_strangers_do_not_disturb(tmp_path):
    """Of all kinds, at every rank; and nothing that is left has the key."""
    stop, bomb = tmp_path / "stop", tmp_path / "bomb"
    flights = tmp_path / "flights"
    keys, made = [], {}

    def disturb(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        keys.append(job_key(running.pids[0]))
        for pid in running.pids:
            environment = Path(f"/proc/{pid}/environ")
            assert stat.S_IMODE(environment.stat().st_mode) == 0o400
            assert keys[0].hex() not in Path(f"/proc/{pid}/cmdline").read_text()
        ports = ports_of(running.pids)
        # One listener per rank; that of rank 0 serves the store as well.
        assert len(ports) == 3, ports
        strangers = Strangers(keys[0], bomb)
        for _ in range(2):
            for kind in strangers.kinds:
                for port in ports:
                    strangers.knock(kind, port)
        made.update(strangers.counts)
        running.send(0, signal.SIGUSR1)
        wait_for_files(flights, ["flight.0.json"])
        strangers.close()
        stop.touch()

    result = run_ranks(
        rank_jobs.train_until,
        3,
        args=(str(stop),),
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
    assert set(made.values()) == {2 * 3}
    assert min(steps) == max(steps) > 50
    assert min(rejected) >= 2 * KEYLESS, rejected
    assert not bomb.exists()
    left = [rank.stdout + rank.stderr for rank in result.ranks]
    for path in files_below(flights):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        left.append(path.read_text())
    assert "refused a connection" in left[0]
    assert not any(keys[0].hex() in text for text in left)


def test_strangers_cannot_keep_a_job_from_starting(tmp_path):
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
                key = job_key(running.pids[0])
                opened.append(Strangers(key, tmp_path / "bomb"))
                for kind in ("silence", "half an opening", "reset") * 3:
                    opened[-1].knock(kind, port)
                found += 1

    result = run_ranks(
        rank_jobs.train_for, 2, args=(1.0,), on_start=disturb, deadline=90
    )
    for strangers in opened:
        strangers.close()
    assert result.values[0][0] >= 1
