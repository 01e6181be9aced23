"""Ranks that start with TensorFlow imported, which takes them seconds else.

A prefork server is a process that has imported TensorFlow and nothing of ours,
made no tensor and started no thread of Python's; each rank is a fork of it,
with the environment, the descriptors and the session of a rank. There are
several, so that neighbours differ in what the forks of one share: the order of
sets, and where libraries lie in memory.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from keras_ring.protocol.contract import RANK

_MAIN = str(Path(__file__).with_name("prefork_server_main.py"))
_COUNT = 2
# What Python and TensorFlow read before the first line of a rank.
_READ_AT_START = (
    "PYTHON",
    "LD_",
    "TF_",
    "XLA_",
    "OMP_",
    "OPENBLAS_",
    "KERAS_B",
)


def can_start(environment: Mapping[str, str]) -> bool:
    """Whether these additional variables may be set after the imports."""
    return not any(name.startswith(_READ_AT_START) for name in environment)


class _Fork:
    """A fork of a prefork server; a `ChildProcess`."""

    stdout = None
    stderr = None

    def __init__(self, server: "_PreforkServer", pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        return self._server.ask({"poll": self.pid})

    def wait(self) -> None:
        self._server.ask({"wait": self.pid})


class _PreforkServer:
    """The process, and the socket through which it is told what to do."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            # It ends when the socket is closed, as it is when we end.
            self._process = subprocess.Popen(
                [sys.executable, _MAIN, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={
                    name: value
                    for name, value in os.environ.items()
                    # It finds `rank_main` beside it.
                    if name != "PYTHONSAFEPATH"
                    and not name.startswith("KERAS_RING_")
                },
            )

    def ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> Any:
        """Sends a request with descriptors; returns the answer."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(fds))
        answer = self._socket.recv(4096)
        if not answer:
            code = self._process.wait()
            raise RuntimeError(f"the prefork server has ended with code {code}")
        return json.loads(answer)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        pass_fds: Sequence[int],
        cwd: Path | None,
    ) -> _Fork:
        """Starts a rank; a `child_process.Start`."""
        pid = self.ask(
            {
                "start": list(command),
                "environment": dict(environment),
                "cwd": str(cwd or os.getcwd()),
                "numbers": [1, 2, *pass_fds],
            },
            [stdout.fileno(), stderr.fileno(), *pass_fds],
        )
        return _Fork(self, pid)

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.wait()


_servers: list[_PreforkServer] = []


def _close() -> None:
    while _servers:
        _servers.pop().close()


def prepare() -> None:
    """Starts the prefork servers, which import while the caller goes on."""
    if not _servers:
        # At once, so that they import on all cores.
        _servers.extend(_PreforkServer() for _ in range(_COUNT))
        atexit.register(_close)


def wait() -> None:
    """Waits until the prefork servers have imported."""
    prepare()
    for server in _servers:
        server.ask({"ready": True})


def start(
    command: Sequence[str], environment: Mapping[str, str], **how: Any
) -> _Fork:
    """Calls `rank_main` in a new rank; a `child_process.Start`.

    Args:
        command: The arguments of `rank_main`.
        environment: The whole environment of the rank.
        **how: As in `child_process.Start`; output goes to files.
    """
    prepare()
    server = _servers[int(environment[RANK]) % _COUNT]
    return server.start(command, environment, **how)
