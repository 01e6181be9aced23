"""The number of cores that this process may use."""

import math
import os
from collections.abc import Callable
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OF_PROCESS = Path("/proc/self/cgroup")

# Function that returns the quota of a group in cores, or None.
_Read = Callable[[Path], float | None]


def available() -> int:
    """Returns the number of cores for this process and its children.

    These are the cores on which the kernel lets it run, or fewer if its control
    group has a quota, as in a container. The number is at least 1.
    """
    allowed = len(os.sched_getaffinity(0))
    limit = quota()
    # Round up, because a part of a core is enough for a thread.
    return allowed if limit is None else max(1, min(allowed, math.ceil(limit)))


def quota(
    cgroups: Path = _CGROUPS, of_process: Path = _OF_PROCESS
) -> float | None:
    """Returns the quota of the process's control group in cores.

    Args:
        cgroups: Path at which control groups are mounted.
        of_process: Path of the file that names the groups of this process.

    Returns:
        Float, the lowest quota of the group and its parents. `None` if there is
        no quota.
    """
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _quotas(cgroups, path, _quota2)
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", controllers):
                found += _quotas(cgroups / mount, path, _quota1)
    return min(found, default=None)


def _quotas(root: Path, path: str, read: _Read) -> list[float]:
    """Returns the quotas of a group and of all its parents.

    A container sees its own group as the root, while the path may be that of
    the host. So folders that do not exist are skipped.
    """
    group = Path(path.lstrip("/"))
    folders = [root / group, *(root / parent for parent in group.parents)]
    found = []
    for folder in folders:
        try:
            value = read(folder)
        except (OSError, ValueError):
            continue
        if value is not None:
            found.append(value)
    return found


def _quota2(folder: Path) -> float | None:
    limit, period = (folder / "cpu.max").read_text().split()
    return None if limit == "max" else int(limit) / int(period)


def _quota1(folder: Path) -> float | None:
    limit = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return None if limit < 0 else limit / period
