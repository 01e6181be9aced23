"""The file system of a path, if hosts share it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Types in /proc/self/mountinfo of file systems that several hosts share.
_SHARED = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "wekafs",
    }
)
# File systems in user space, such as a mounted bucket or `sshfs`.
_BY_PROGRAM = "fuse."
_MOUNTS = Path("/proc/self/mountinfo")


def shared_file_system(path: str) -> str | None:
    """Returns the file system of a path, under a name that hosts share.

    Args:
        path: String, an absolute path. It need not exist yet.

    Returns:
        String, such as `"server:/export"`, or `None` if the file system is
        local to this host or not known.
    """
    longest, found = "", None
    try:
        real = os.path.realpath(path)
        for mount_point, name in _mounts():
            is_above = os.path.commonpath([mount_point, real]) == mount_point
            # Of several mounts at one path, the last hides the others.
            if is_above and len(mount_point) >= len(longest):
                longest, found = mount_point, name
    except OSError:
        return None
    return found


def _mounts() -> Iterator[tuple[str, str | None]]:
    """Yields each mount point, and the file system's name if it is shared.

    The format of the lines is described in proc_pid_mountinfo(5).
    """
    for line in _MOUNTS.read_text().splitlines():
        mount, _, system = line.partition(" - ")
        kind, source = system.split()[:2]
        mount_point = mount.split()[4].encode().decode("unicode_escape")
        is_shared = kind in _SHARED or kind.startswith(_BY_PROGRAM)
        yield mount_point, source if is_shared else None
