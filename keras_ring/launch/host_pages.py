"""Status pages of the ranks on all hosts of a job, for watchers.

Agents read the status pages of their hosts only when a watcher asks. A watcher,
such as `keras-ring top`, asks through a socket of the launcher, which is in the
folder of the pages of its host. Each connection is one request. A separate
thread serves the socket, so the launcher never waits for a watcher.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from keras_ring.errors import ConfigurationError
from keras_ring.launch.agent_connection import AgentConnection
from keras_ring.launch.frames import Frame, encode
from keras_ring.launch.usage import say
from keras_ring.observe import launcher_socket
from keras_ring.observe.directory import make_private, status_directory
from keras_ring.observe.jobs import current, local_pages
from keras_ring.observe.pages import Page

# Seconds that hosts have to answer. This is less than half of the silence after
# which a host is lost, because a rate takes two requests.
_PATIENCE = 1.5
# Seconds that a watcher has to take an answer.
_READER_PATIENCE = 5.0
_BACKLOG = 16


def answer(
    number: int,
    environment: Mapping[str, str],
    job: str,
    ranks: Collection[int] | None,
) -> bytes:
    """Returns an agent's answer to a request for pages.

    Args:
        number: Integer, the number of the request.
        environment: The environment variables of the ranks.
        job: String, the name of the job.
        ranks: The ranks of this host. `None` in an elastic job, where they have
            other numbers after a loss: the pages tell their host.

    Returns:
        Bytes, the encoded message.
    """
    pages = local_pages(status_directory(environment), job)
    host = socket.gethostname()
    records = [
        page.to_record()
        for page in pages
        if (page.host == host if ranks is None else page.rank in ranks)
    ]
    return encode("pages", json.dumps(records).encode(), number=number)


class HostPages:
    """The status pages of all agents, read on request.

    Args:
        agents: Function that returns the agents of the job.
    """

    def __init__(self, agents: Callable[[], Sequence[AgentConnection]]) -> None:
        self._agents = agents
        # Several threads may ask, but only one at a time.
        self._asking = threading.Lock()
        self._changed = threading.Condition()
        self._number = 0
        self._answers: dict[AgentConnection, bytes] = {}

    def on_pages(self, agent: AgentConnection, frame: Frame) -> None:
        """Keeps an answer. The loop over agents calls it."""
        with self._changed:
            # Late answers belong to an earlier request.
            if frame.fields["number"] == self._number:
                self._answers[agent] = frame.payload
                self._changed.notify_all()

    def read(self) -> list[Page]:
        """Returns the pages of all hosts that answer in time."""
        with self._asking:
            asked = [
                agent
                for agent in self._agents()
                if agent.greeted and not agent.ended and not agent.closed
            ]
            with self._changed:
                self._number += 1
                self._answers = {}
            for agent in asked:
                agent.say("pages", number=self._number)
            end = time.monotonic() + _PATIENCE
            with self._changed:
                while any(
                    agent not in self._answers and not agent.ended
                    for agent in asked
                ):
                    left = end - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        break
                texts = list(self._answers.values())
        records = [record for text in texts for record in json.loads(text)]
        pages = [Page.from_record(record) for record in records]
        return list(current(page for page in pages if page is not None))


@contextlib.contextmanager
def served(
    environment: Mapping[str, str], job: str, read: Callable[[], Sequence[Page]]
) -> Iterator[None]:
    """Serves the pages of a job to watchers of this user and host.

    A job runs without this, too: a failure is printed and is not an error.

    Args:
        environment: The environment variables of the ranks.
        job: String, the name of the job.
        read: Function that returns the pages.
    """
    directory = status_directory(environment)
    if directory is None:
        yield
        return
    try:
        path, listener = _listen(directory, job)
    except (OSError, ConfigurationError) as error:
        say(f"keras-ring top will not see other hosts: {error}")
        yield
        return
    thread = threading.Thread(target=_serve, args=(listener, read), daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
            # This fails if a killed rank has left its page.
            path.parent.rmdir()
        # Wake the thread. If it is busy, it ends after its current request.
        listener.shutdown(socket.SHUT_RDWR)


def _listen(directory: Path, job: str) -> tuple[Path, socket.socket]:
    make_private(directory)
    make_private(directory / job)
    path = directory / job / launcher_socket.socket_name(os.getpid())
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(launcher_socket.short_address(parent, path.name))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(parent)
    return path, listener


def _serve(listener: socket.socket, read: Callable[[], Sequence[Page]]) -> None:
    with listener:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            # Errors of a watcher that has gone, or of a malformed answer.
            with connection, contextlib.suppress(OSError, ValueError):
                connection.settimeout(_READER_PATIENCE)
                if launcher_socket.is_own_user(connection):
                    records = [page.to_record() for page in read()]
                    connection.sendall(json.dumps(records).encode())
