"""Requests the pages of other hosts from the launcher of a job."""

import json
import os
import re
import socket
import struct
from pathlib import Path

from keras_ring.observe import process
from keras_ring.observe.pages import Page

_NAME = re.compile(r"launcher\.([0-9]+)\.sock")
# Seconds; longer than the launcher itself waits for its hosts.
_PATIENCE = 4.0
_READ = 1 << 16
_CREDENTIALS = struct.Struct("3i")


def socket_name(pid: int) -> str:
    """Returns the file name of the socket of a launcher."""
    return f"launcher.{pid}.sock"


def launcher_of(path: Path) -> int | None:
    """Returns the process id of a launcher by the path of its socket."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def is_own_user(connection: socket.socket) -> bool:
    """Returns whether the peer is a process of this user."""
    data = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    return bool(_CREDENTIALS.unpack(data)[1] == os.geteuid())


def short_address(directory_fd: int, name: str) -> str:
    """Returns a path of a socket that is within the system's limit.

    Args:
        directory_fd: Descriptor of its directory, whose path may be too long.
        name: File name of the socket.
    """
    return f"/proc/self/fd/{directory_fd}/{name}"


def ask(path: Path) -> list[Page]:
    """Returns the pages of all ranks that a launcher reaches.

    The list is empty if the launcher does not answer: it may be about to end.
    """
    pid = launcher_of(path)
    if pid is None or process.look(pid) is None:
        return []
    try:
        records = json.loads(_receive(path))
    except (OSError, ValueError):
        return []
    if not isinstance(records, list):
        return []
    pages = (Page.from_record(record) for record in records)
    return [page for page in pages if page is not None]


def _receive(path: Path) -> bytes:
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(short_address(directory, path.name))
            if not is_own_user(connection):
                return b""
            parts = []
            while data := connection.recv(_READ):
                parts.append(data)
            return b"".join(parts)
    finally:
        os.close(directory)
