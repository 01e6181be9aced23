"""Prometheus itself reads the metrics of a job, with our configuration."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from keras_ring.observe.directory import VARIABLE
from tests.launcher.command import LIMIT

pytest.importorskip("prometheus_client")
pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Prometheus:
    """The server of Debian's package, with the example's configuration."""

    def __init__(self, folder, target, token):
        program = shutil.which("prometheus")
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        for old, new in (
            ("127.0.0.1:9400", target),
            ("/etc/prometheus/keras_ring.token", str(token)),
            ("scrape_interval: 5s", "scrape_interval: 200ms"),
        ):
            assert old in text
            text = text.replace(old, new)
        config = folder / "prometheus.yml"
        config.write_text(text)
        self._port = free_port()
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}"
        with urllib.request.urlopen(
            f"{url}?{urllib.parse.urlencode(query)}", timeout=10
        ) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return told["data"]

    def values(self, expression):
        """Returns the values of an expression, by rank."""
        found = self.ask("query", query=expression)["result"]
        return {
            each["metric"].get("rank", ""): float(each["value"][1])
            for each in found
        }

    def wait_for(self, expression, expected):
        end = time.monotonic() + LIMIT
        while True:
            try:
                found = self.values(expression)
            except urllib.error.URLError:
                # It starts.
                found = None
            if found == expected:
                return
            assert time.monotonic() < end, found
            time.sleep(0.1)

    def end(self):
        self._process.terminate()
        self._process.wait(LIMIT)


@pytest.fixture
def prometheus(tmp_path):
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is missing: install Debian's prometheus")
    started = []

    def start(target, token):
        folder = tmp_path / f"prometheus{len(started)}"
        folder.mkdir()
        started.append(Prometheus(folder, target, token))
        return started[-1]

    yield start
    for each in started:
        each.end()


def expressions():
    board = json.loads((ROOT / "deploy/grafana/keras_ring.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$job", ".*")
            yield text.replace("$__rate_interval", "2s")


def test_prometheus_reads_a_job(running, prometheus, tmp_path):
    job = running(
        *("-np", "2", "--metrics-port", "0"),
        **{
            VARIABLE: str(tmp_path / "status"),
            "XDG_CONFIG_HOME": str(tmp_path),
        },
    )
    said = job.process.stderr.readline().decode()
    target, token = re.search(
        r"metrics at http://(\S+)/metrics; the token is in (\S+)$", said
    ).groups()
    server = prometheus(target, token)
    server.wait_for("keras_ring_samples_total", {"0": 100.0, "1": 200.0})
    assert server.values("sum by (rank) (keras_ring_running)") == {
        "0": 1.0,
        "1": 1.0,
    }
    # Not that of the configuration, which would be `keras_ring`.
    jobs = server.ask("label/job/values", **{"match[]": "keras_ring_job_ranks"})
    assert [len(name) for name in jobs] == [12]
    for expression in expressions():
        server.ask("query", query=expression)
    # It asks for OpenMetrics, where a counter's name has no `_total`.
    about = server.ask("metadata", metric="keras_ring_samples")
    assert about["keras_ring_samples"][0]["type"] == "counter"
    wrong = tmp_path / "wrong.token"
    wrong.write_text("0123456789abcdef")
    prometheus(target, wrong).wait_for("up", {"": 0.0})
    (tmp_path / "end").touch()
    assert job.wait().returncode == 0
    server.wait_for("up", {"": 0.0})
