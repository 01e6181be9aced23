"""Asks the launcher of a job for the pages that lie on other hosts."""

import json
import os
import re
import socket
import struct
from pathlib import Path

from keras_ring.live import process
from keras_ring.live.pages import Page

_NAME = re.compile(r"launcher\.([0-9]+)\.sock")
# The launcher itself waits for its hosts for less.
_PATIENCE = 4.0
_READ = 1 << 16
_CREDENTIALS = struct.Struct("3i")


def socket_name(pid: int) -> str:
    """Returns what the socket of a launcher is called."""
    return f"launcher.{pid}.sock"


def launcher_of(path: Path) -> int | None:
    """Returns the process id of the launcher whose socket this is."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def is_own_user(connection: socket.socket) -> bool:
    """Returns whether the other end is a process of this user."""
    data = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    return bool(_CREDENTIALS.unpack(data)[1] == os.geteuid())


def short_address(directory_fd: int, name: str) -> str:
    """Returns a path of a socket that is short enough for the system.

    Args:
        directory_fd: Descriptor of its directory, whose own path may be long.
        name: Its name there.
    """
    return f"/proc/self/fd/{directory_fd}/{name}"


def ask(path: Path) -> list[Page]:
    """Returns the pages of all ranks that a launcher reaches.

    None of them if it does not answer: it may be about to end.
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
