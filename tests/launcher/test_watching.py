"""`keras-ring top` and `status` while a job runs on one host, on several."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest

from keras_ring.observe.directory import VARIABLE
from keras_ring.observe.jobs import Job
from tests.launcher.command import LIMIT
from tests.unit.status_pages import PageFile

pytestmark = pytest.mark.timeout(60)


def keras_ring(*words, status):
    return subprocess.run(
        [sys.executable, "-m", "keras_ring", *words],
        env={**os.environ, VARIABLE: str(status)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def look(size, status, *words):
    """Returns what `status` prints once all ranks are seen."""
    end = time.monotonic() + LIMIT
    while True:
        done = keras_ring(
            *("status", "--json", "--interval", "0.01", *words), status=status
        )
        if done.returncode == 0:
            told = json.loads(done.stdout)
            if len(told["ranks"]) == size:
                return told
        assert time.monotonic() < end, done
        time.sleep(0.05)


@pytest.mark.quick
def test_a_job_is_found_by_its_launcher(running, tmp_path):
    status = tmp_path / "status"
    job = running("-np", "2", **{VARIABLE: str(status)})
    told = look(2, status, str(job.process.pid))
    assert [rank["rank"] for rank in told["ranks"]] == [0, 1]
    assert told["unseen"] == []
    (tmp_path / "end").touch()
    assert job.wait().returncode == 0
    assert keras_ring("status", told["job"], status=status).returncode == 1
    assert list(status.iterdir()) == []


def test_a_launcher_removes_what_old_jobs_have_left(running, tmp_path):
    """Nobody may ever look at the jobs of a host."""
    status = tmp_path / "status"
    ended = subprocess.Popen(["true"])
    ended.wait()
    PageFile(status, job="aaaaaaaaaaaa", pid=ended.pid, started_unix_ns=0)
    PageFile(status, job="bbbbbbbbbbbb", pid=ended.pid)
    for path in status.iterdir():
        os.utime(path, (0, 0))
    (tmp_path / "end").touch()
    assert running("-np", "1", **{VARIABLE: str(status)}).wait().returncode == 0
    assert [path.name for path in status.iterdir()] == ["b" * 12]


def can_hide():
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False)


@pytest.fixture
def hosts(tmp_path, request):
    """A way to two hosts with pages of their own, as each has its /tmp.

    With the parameter "shared" they have one directory.
    """
    shared = getattr(request, "param", "") == "shared"
    if not shared and can_hide().returncode:
        pytest.skip("needs to mount, as root may")
    # Longer than the path of a socket may be.
    status = tmp_path / ("x" * 100)
    status.mkdir(mode=0o700)
    shell = tmp_path / "rsh"
    hide = f"mount -t tmpfs -o mode=700 tmpfs {status} &&"
    shell.write_text(
        '#!/bin/sh\nexport TEST_HOST="$1"; shift\n'
        + (
            'exec sh -c "$*"\n'
            if shared
            else f'exec unshare --mount sh -c "{hide} $*"\n'
        )
    )
    shell.chmod(0o700)
    return status, ("-H", "host-a:1,host-b:2", "--rsh", str(shell))


def test_ranks_of_other_hosts_come_by_the_launcher(running, hosts, tmp_path):
    status, where = hosts
    job = running(*where, **{VARIABLE: str(status)})
    told = look(3, status)
    assert [rank["host"] for rank in told["ranks"]] == [
        *("host-a", "host-b", "host-b")
    ]
    assert [rank["state"] for rank in told["ranks"]] == ["running"] * 3
    assert told["unseen"] == []
    # Not even its socket is for others.
    (socket,) = (status / told["job"]).iterdir()
    assert socket.name == f"launcher.{job.process.pid}.sock"
    assert socket.stat().st_mode & 0o777 == 0o600
    assert look(3, status, str(job.process.pid))["job"] == told["job"]
    (tmp_path / "end").touch()
    assert job.wait().returncode == 0
    assert list(status.iterdir()) == []


@pytest.mark.parametrize("hosts", ["", "shared"], indirect=True)
def test_metrics_of_all_hosts(running, hosts, tmp_path):
    """Served by the launcher, for the hosts show theirs to nobody else."""
    pytest.importorskip("prometheus_client")
    status, where = hosts
    job = running(
        *(*where, "--metrics-port", "0"),
        **{VARIABLE: str(status), "KERAS_RING_METRICS_TOKEN": "a" * 16},
    )
    said = job.process.stderr.readline().decode()
    request = urllib.request.Request(
        re.search(r"http://\S+", said)[0],
        headers={"Authorization": f"Bearer {'a' * 16}"},
    )
    look(3, status)
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'keras_ring_running\{host="(.*?)".*rank="(.)"', text)
    assert found == [("host-a", "0"), ("host-b", "1"), ("host-b", "2")]


def test_a_host_that_stands_still_is_left_out(running, hosts, tmp_path):
    """Before its silence is the end of the job."""
    status, where = hosts
    job = running(*where, **{VARIABLE: str(status)})
    told = look(3, status)
    agents = [
        child
        for child in psutil.Process(job.process.pid).children()
        if "keras_ring.launch.agent" in " ".join(child.cmdline())
    ]
    assert len(agents) == 2
    agents[1].suspend()
    try:
        pages = Job(status / told["job"]).read().pages
    finally:
        agents[1].resume()
    # The other one is still seen.
    assert len(pages) in (1, 2)
