"""Who gets metrics over HTTP, and with which token."""

import contextlib
import http.client
import os
import socket
import sys
import threading
import time

import pytest

from keras_ring.launch import metrics_server, metrics_token
from keras_ring.launch.cli import cli
from keras_ring.launch.metrics_server import MetricsServer, serving
from keras_ring.launch.metrics_token import Token, find_token
from keras_ring.launch.usage import UsageError
from keras_ring.observe.pages import read_page
from tests.unit.status_pages import PageFile

pytest.importorskip("prometheus_client")

SECRET = "0123456789abcdef"
GOOD = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def server(tmp_path):
    file = PageFile(tmp_path)
    file.set(samples=42)
    made = MetricsServer("127.0.0.1", 0, Token(SECRET, None))
    thread = threading.Thread(target=made.serve_forever, args=(3600.0,))
    thread.start()
    made.show(lambda: [read_page(file.path)])
    yield made
    made.stop()
    thread.join(10)
    assert not thread.is_alive()
    made.server_close()


def get(server, headers, path="/metrics"):
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.server_port, timeout=10
    )
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def test_with_the_token(server):
    answer, text = get(server, GOOD)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert "\nkeras_ring_samples_total{" in text
    assert " 42.0\n" in text
    answer, text = get(
        server, {**GOOD, "Accept": "application/openmetrics-text"}
    )
    assert answer.headers["Content-Type"].startswith("application/openmetrics")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {SECRET}"},
        {"Authorization": f"Bearer {SECRET}x"},
        {"Authorization": f"Bearer {SECRET[:-1]}"},
        {"Authorization": f"Bearer {SECRET[:-1]}\xff"},
        {"Authorization": SECRET},
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_without_the_token(server, headers, path):
    answer, text = get(server, headers, path)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "keras_ring_" not in text
    assert SECRET not in text


def test_other_paths(server):
    assert get(server, GOOD, "/")[0].status == 404
    assert get(server, GOOD, "/metrics?x=1")[0].status == 200


def test_strangers_take_no_more_than_some_threads(server):
    before = set(threading.enumerate())
    held = [
        socket.create_connection(("127.0.0.1", server.server_port), 10)
        for _ in range(3 * metrics_server._MAX_CONNECTIONS)
    ]
    # The oldest are closed for those that come after them.
    for connection in held[: -metrics_server._MAX_CONNECTIONS]:
        assert connection.recv(1) == b""
    taken = set(threading.enumerate()) - before
    assert len(taken) <= metrics_server._MAX_CONNECTIONS
    for connection in held:
        connection.close()
    for thread in taken:
        thread.join(10)
    assert get(server, GOOD)[0].status == 200


def test_strangers_that_drip_do_not_shut_the_owner_out(server):
    """Each sends a byte now and then, and never comes to an end."""
    strangers = [
        socket.create_connection(("127.0.0.1", server.server_port), 10)
        for _ in range(metrics_server._MAX_CONNECTIONS)
    ]
    over = threading.Event()

    def drip():
        while not over.wait(0.02):
            for stranger in strangers:
                # Those that were closed are no business of this test.
                with contextlib.suppress(OSError):
                    stranger.send(b"G")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        # Each time the oldest of them loses its slot.
        for _ in range(2):
            assert get(server, GOOD)[0].status == 200
    finally:
        over.set()
        dripping.join(10)
        for stranger in strangers:
            stranger.close()


def test_a_request_has_a_limit_however_it_comes(server, monkeypatch):
    monkeypatch.setattr(metrics_server, "_PATIENCE", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as one:
        one.settimeout(0.02)
        give_up = time.monotonic() + 20.0
        closed = False
        while not closed and time.monotonic() < give_up:
            try:
                one.send(b"G")
                closed = one.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
        assert closed


def test_a_request_in_progress_keeps_its_slot(server):
    """Whoever has shown the token is not ended for a newcomer."""
    asked, go_on = threading.Event(), threading.Event()

    def slow():
        asked.set()
        assert go_on.wait(20)
        return []

    server.show(slow)
    answers = []
    owner = threading.Thread(target=lambda: answers.append(get(server, GOOD)))
    owner.start()
    assert asked.wait(10)
    held = [
        socket.create_connection(("127.0.0.1", server.server_port), 10)
        for _ in range(2 * metrics_server._MAX_CONNECTIONS)
    ]
    assert held[0].recv(1) == b""
    go_on.set()
    owner.join(10)
    assert answers[0][0].status == 200
    for connection in held:
        connection.close()


def test_a_port_that_is_taken(server):
    port = server.server_port
    with pytest.raises(UsageError, match=f"{port}: cannot listen on 127"):
        MetricsServer("127.0.0.1", port, Token(SECRET, None))


def test_it_is_said_where_metrics_and_token_are(tmp_path, capsys):
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    with serving(("127.0.0.1", 0), environment):
        said = capsys.readouterr().err
    token = tmp_path / "keras_ring" / "metrics.token"
    assert "keras-ring: metrics at http://127.0.0.1:" in said
    assert f"/metrics; the token is in {token}\n" in said
    assert token.read_text().strip() not in said


def test_the_token_of_the_environment(tmp_path):
    name = "KERAS_RING_METRICS_TOKEN"
    assert find_token({name: SECRET}) == Token(SECRET, None)
    for bad in ("", "short", f"{SECRET} {SECRET}", f"{SECRET}\n"):
        with pytest.raises(UsageError, match="at least 16 characters"):
            find_token({name: bad})
    assert SECRET not in repr(Token(SECRET, None))


def test_the_token_of_a_file(tmp_path, monkeypatch):
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    first = find_token(environment)
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert len(first.text) > 40
    assert find_token(environment) == first
    assert os.listdir(first.path.parent) == ["metrics.token"]
    # Another launcher makes it at the same time.
    other = find_token(environment)
    assert metrics_token._make(first.path) == other.text
    first.path.chmod(0o640)
    with pytest.raises(UsageError, match=r"read by others \(mode 640\)"):
        find_token(environment)
    first.path.chmod(0o600)
    first.path.write_text("x\n")
    with pytest.raises(UsageError, match="holds no token"):
        find_token(environment)
    first.path.unlink()
    first.path.mkdir()
    with pytest.raises(UsageError, match=r"metrics\.token"):
        find_token(environment)


@pytest.mark.parametrize(
    "options, text",
    [
        (["--metrics-port", "65536"], "--metrics-port 65536: expected a port"),
        (["--metrics-port", "-1"], "--metrics-port -1: expected a port"),
        (["--metrics-host", "::"], "say on which port, by --metrics-port"),
        (
            ["--metrics-port", "0", "--metrics-host", "not an address"],
            "cannot listen on not an address",
        ),
    ],
)
def test_bad_usage(monkeypatch, tmp_path, capsys, options, text):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert cli.main(["run", "-np", "1", *options, "--", "true"]) == 2
    assert text in capsys.readouterr().err


def test_a_package_that_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)
    command = ["run", "-np", "1", "--metrics-port", "0", "--", "true"]
    assert cli.main(command) == 2
    assert "pip install 'keras-ring[metrics]'" in capsys.readouterr().err


def test_ranks_do_not_get_the_token(monkeypatch, capfd):
    monkeypatch.setenv("KERAS_RING_METRICS_TOKEN", SECRET)
    words = [sys.executable, "-c", "import os; print(sorted(os.environ))"]
    assert (
        cli.main(["run", "-np", "1", "--metrics-port", "0", "--", *words]) == 0
    )
    out = capfd.readouterr().out
    assert "KERAS_RING_RANK" in out
    assert "METRICS_TOKEN" not in out
