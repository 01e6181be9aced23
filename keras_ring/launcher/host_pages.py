"""What ranks on all hosts of a job show, for whoever looks at it.

Agents read the status pages of their hosts when somebody asks, and only then.
Whoever asks (`keras-ring top`) does so through a socket of the launcher, beside
the pages of its host; each connection is one look. A thread of its own serves
it: the launcher never waits for a watcher.
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
from keras_ring.launcher.agent_connection import AgentConnection
from keras_ring.launcher.frames import Frame, encode
from keras_ring.launcher.usage import say
from keras_ring.live import launcher_socket
from keras_ring.live.directory import make_private, status_directory
from keras_ring.live.jobs import local_pages
from keras_ring.live.pages import Page

# Seconds that hosts have to answer; less than half of the silence after which a
# host is lost, for a rate takes two looks.
_PATIENCE = 1.5
# Seconds that a watcher has to take what it asked for.
_READER_PATIENCE = 5.0
_BACKLOG = 16


def answer(
    number: int,
    environment: Mapping[str, str],
    job: str,
    ranks: Collection[int],
) -> bytes:
    """Returns what an agent says when it is asked for pages.

    Args:
        number: Of the question.
        environment: That of the ranks.
        job: Name of the job.
        ranks: Those of this host.
    """
    pages = local_pages(status_directory(environment), job)
    records = [page.to_record() for page in pages if page.rank in ranks]
    return encode("pages", json.dumps(records).encode(), number=number)


class HostPages:
    """Asks all agents for their pages, and collects the answers.

    Args:
        agents: Returns those that there are.
    """

    def __init__(self, agents: Callable[[], Sequence[AgentConnection]]) -> None:
        self._agents = agents
        # One question at a time; several may ask.
        self._asking = threading.Lock()
        self._changed = threading.Condition()
        self._number = 0
        self._answers: dict[AgentConnection, bytes] = {}

    def on_pages(self, agent: AgentConnection, frame: Frame) -> None:
        """Takes an answer; called by the loop over agents."""
        with self._changed:
            # Late answers belong to an earlier question.
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
        known = [page for page in pages if page is not None]
        return sorted(known, key=lambda page: page.rank)


@contextlib.contextmanager
def served(
    environment: Mapping[str, str], job: str, read: Callable[[], Sequence[Page]]
) -> Iterator[None]:
    """Serves the pages of a job to watchers of this user and host.

    A job runs without this, too: what goes wrong is said, and no error.

    Args:
        environment: That of the ranks.
        job: Name of the job.
        read: Returns the pages.
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
            # If no killed rank has left its page.
            path.parent.rmdir()
        # Wakes the thread, unless it is at work: then it ends by itself.
        listener.shutdown(socket.SHUT_RDWR)


def _listen(directory: Path, job: str) -> tuple[Path, socket.socket]:
    make_private(directory)
    make_private(directory / job)
    path = directory / job / launcher_socket.socket_name(os.getpid())
    place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(launcher_socket.short_address(place, path.name))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(place)
    return path, listener


def _serve(listener: socket.socket, read: Callable[[], Sequence[Page]]) -> None:
    with listener:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            # A watcher that has gone, or an agent that broke the protocol.
            with connection, contextlib.suppress(OSError, ValueError):
                connection.settimeout(_READER_PATIENCE)
                if launcher_socket.is_own_user(connection):
                    records = [page.to_record() for page in read()]
                    connection.sendall(json.dumps(records).encode())
