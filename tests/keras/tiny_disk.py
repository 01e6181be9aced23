"""A file system of a few pages, to see what a full disk does."""

import ctypes
import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Of <sched.h> and <sys/mount.h>.
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 0x1, 0x20, 0x4000, 0x40000


class TinyDisk:
    """A disk at a path that the calling thread alone sees.

    It is gone with the thread, however that ends.

    Args:
        path: Where to, an existing directory.
        num_pages: Integer, how much it holds.

    Raises:
        PermissionError: If this process may not mount.
    """

    def __init__(self, path: str, num_pages: int) -> None:
        self._path = os.fsencode(path)
        self._filler = Path(path, "filler")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._require(self._libc.unshare(_CLONE_NEWNS))
        self._mount(b"/", _MS_REC | _MS_PRIVATE)
        self._mount(self._path, 0, f"size={num_pages * _PAGE}".encode())

    def make_read_only(self) -> None:
        """Has nothing more be written."""
        self._mount(self._path, _MS_REMOUNT | _MS_RDONLY)

    def leave(self, num_pages: int) -> None:
        """Has so many pages be free, or fewer if they are not."""
        self.clear()
        stat = os.statvfs(self._filler.parent)
        free = stat.f_bavail * stat.f_frsize
        self._filler.write_bytes(bytes(max(0, free - num_pages * _PAGE)))

    def clear(self) -> None:
        """Has all pages be free that hold no file of the test."""
        self._filler.unlink(missing_ok=True)

    def _mount(self, path: bytes, flags: int, options: bytes = b"") -> None:
        kind = b"tmpfs"
        flags = ctypes.c_ulong(flags)
        self._require(self._libc.mount(kind, path, kind, flags, options))

    def _require(self, returned: int) -> None:
        if returned != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
