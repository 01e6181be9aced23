"""The limit of open files: a launcher needs some for each rank."""

import contextlib
import os
import resource
from collections.abc import Iterator

from keras_ring.launch.usage import UsageError

# Descriptors for the end of a rank and its two streams.
_OF_A_RANK = 3
# Descriptors for the streams of an agent.
_OF_A_HOST = 3
# Files of `--output-dir`.
_KEPT_OF_A_RANK = 2
# Other descriptors, open briefly or during the job.
_OTHERS = 32
_UNLIMITED = resource.RLIM_INFINITY


def make_room(*, ranks: int, hosts: int = 0, kept_ranks: int = 0) -> int | None:
    """Raises the soft limit to what a launcher or an agent needs.

    Args:
        ranks: Integer, the number of ranks that are its children.
        hosts: Integer, the number of agents that are its children.
        kept_ranks: Integer, the number of ranks whose output it writes to
            files.

    Returns:
        Integer, the previous soft limit, to be restored in children, because
        some programs fail with a higher one (`select`). `None` if the limit has
        not been raised.

    Raises:
        UsageError: If the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = (
        ranks * _OF_A_RANK
        + hosts * _OF_A_HOST
        + kept_ranks * _KEPT_OF_A_RANK
        + len(os.listdir("/proc/self/fd"))
        + _OTHERS
    )
    if soft == _UNLIMITED or soft >= needed:
        return None
    if hard != _UNLIMITED and hard < needed:
        what = f"{hosts} hosts" if hosts else f"{ranks} ranks on this host"
        raise UsageError(
            f"this process may have {hard} files open, and {what} need"
            f" {needed}; raise the hard limit (`ulimit -Hn`, LimitNOFILE= of"
            " systemd, --ulimit nofile= of docker), or start fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return soft


@contextlib.contextmanager
def room(
    *, ranks: int, hosts: int = 0, kept_ranks: int = 0
) -> Iterator[int | None]:
    """Calls `make_room` for the block, and restores the limit after it.

    Args:
        ranks: As in `make_room`.
        hosts: As in `make_room`.
        kept_ranks: As in `make_room`.

    Yields:
        The result of `make_room`.
    """
    before = make_room(ranks=ranks, hosts=hosts, kept_ranks=kept_ranks)
    try:
        yield before
    finally:
        if before is not None:
            restore(before)


def restore(soft: int) -> None:
    """Sets the soft limit to this value."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
