"""Serves the metrics of a job to Prometheus, over HTTP.

The resources that a client can take from the launcher before it has sent the
token are bounded.
"""

import contextlib
import hmac
import importlib
import io
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from keras_ring.launch.metrics_token import Token, find_token
from keras_ring.launch.strangers import ConnectionSlots, TimelyReader
from keras_ring.launch.usage import UsageError, say
from keras_ring.observe.pages import Page

_PATH = "/metrics"
_MAX_CONNECTIONS = 8
# Seconds that an idle server sleeps; `stop` wakes it.
_WAKE_SECONDS = 3600.0
# Seconds for a whole request to arrive, and for an answer to be taken.
_PATIENCE = 10.0
_MISSING = (
    "--metrics-port needs prometheus_client: pip install 'keras-ring[metrics]',"
    " or pip install prometheus_client"
)

_Read = Callable[[], Sequence[Page]]
# Takes a function that reads the pages of a job, once the job runs.
Show = Callable[[_Read], None]


class MetricsServer(socketserver.ThreadingMixIn, HTTPServer):
    """The HTTP server that answers Prometheus.

    Args:
        host: String, the name or address on which to listen.
        port: Integer, the port, or `0` for any.
        token: `Token` that Prometheus has to send.

    Raises:
        UsageError: If it cannot listen there, or a package is missing.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, token: Token) -> None:
        self._token = f"Bearer {token.text}".encode()
        self._slots = ConnectionSlots(_MAX_CONNECTIONS)
        self._read: _Read = tuple
        self._exposition, registry, collector = _prometheus()
        self.registry = registry()
        self.registry.register(collector(lambda: self._read()))
        try:
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            self.address_family, *_, address = found[0]
            super().__init__((str(address[0]), port), _Handler)
        except OSError as error:
            raise UsageError(
                f"--metrics-port {port}: cannot listen on {host}:"
                f" {error.strerror}"
            ) from error

    def server_bind(self) -> None:
        """Binds the socket. Unlike HTTPServer, it asks no name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = self.server_address[1]

    def stop(self) -> None:
        """Ends `serve_forever`, which runs in another thread."""
        # This makes the socket ready, so that the loop wakes and ends.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()

    def show(self, read: _Read) -> None:
        """Sets the function that returns the pages to serve."""
        self._read = read

    def accepts(self, peer: socket.socket, authorization: str) -> bool:
        """Returns whether a request may be answered.

        Args:
            peer: The connection of the request. If the request is accepted, no
                new connection can replace it.
            authorization: String, the `Authorization` header of the request.
        """
        given = authorization.encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._token):
            return False
        self._slots.keep(peer)
        return True

    def answer(self, accept: str) -> tuple[str, bytes]:
        """Returns the type and the text of the metrics.

        Args:
            accept: String, the `Accept` header of the request.
        """
        encode, kind = self._exposition.choose_encoder(accept)
        return kind, encode(self.registry)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread. May close an unauthenticated connection."""
        if not self._slots.take(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # The thread could not be started.
            self._slots.leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.leave()

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection, which no new one replaces any more."""
        self._slots.keep(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: the other end has broken the connection."""


class _Handler(BaseHTTPRequestHandler):
    """The handler of one connection."""

    server: MetricsServer

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(TimelyReader(self.request, _PATIENCE))

    def do_GET(self) -> None:
        # The time limit holds for each whole call of `sendall`.
        self.connection.settimeout(_PATIENCE)
        authorization = self.headers.get("Authorization", "")
        if not self.server.accepts(self.connection, authorization):
            self._say(
                401,
                "text/plain",
                b"a bearer token is required; keras-ring run has told where it"
                b" is\n",
                ("WWW-Authenticate", "Bearer"),
            )
        elif self.path.partition("?")[0] != _PATH:
            self._say(404, "text/plain", f"try {_PATH}\n".encode())
        else:
            accept = self.headers.get("Accept", "")
            self._say(200, *self.server.answer(accept))

    def _say(
        self, code: int, kind: str, text: bytes, *headers: tuple[str, str]
    ) -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(text))),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def version_string(self) -> str:
        return "keras-ring"

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: the launcher's output is that of the ranks."""


def _prometheus() -> tuple[Any, Any, Any]:
    try:
        # Imported here, because a job without metrics needs no
        # prometheus_client.
        exposition = importlib.import_module("prometheus_client.exposition")
        registry = importlib.import_module("prometheus_client.registry")
        metrics = importlib.import_module("keras_ring.observe.metrics")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise UsageError(_MISSING) from None
    return exposition, registry.CollectorRegistry, metrics.PageCollector


@contextlib.contextmanager
def serving(
    address: tuple[str, int] | None, environment: Mapping[str, str]
) -> Iterator[Show]:
    """Serves metrics inside of the block.

    Args:
        address: Tuple of the host and the port on which to listen. `None` for
            no metrics.
        environment: The environment variables of the launcher, which may have
            the token.

    Yields:
        Function to call with a function that reads the pages, once the job
        runs.

    Raises:
        UsageError: If it cannot listen there, or a package is missing.
    """
    if address is None:
        yield lambda read: None
        return
    token = find_token(environment)
    with MetricsServer(*address, token) as server:
        host, port = server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        where = "" if token.path is None else f"; the token is in {token.path}"
        say(f"metrics at http://{shown}:{port}{_PATH}{where}")
        thread = threading.Thread(
            target=server.serve_forever, args=(_WAKE_SECONDS,), daemon=True
        )
        thread.start()
        try:
            yield server.show
        finally:
            server.stop()
            thread.join()
