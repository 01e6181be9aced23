"""The limit of open files, of which a launcher has some for each rank."""

import contextlib
import os
import resource
from collections.abc import Iterator

from keras_ring.launcher.usage import UsageError

# The end of a rank, and its two streams.
_OF_A_RANK = 3
# The streams of an agent.
_OF_A_HOST = 3
# Files of `--output-dir`.
_KEPT_OF_A_RANK = 2
# What else is open, for a moment or for the job.
_OTHERS = 32
_UNLIMITED = resource.RLIM_INFINITY


def make_room(*, ranks: int, hosts: int = 0, kept_ranks: int = 0) -> int | None:
    """Raises the soft limit, as far as a launcher or an agent needs it.

    Args:
        ranks: Ranks that are its children.
        hosts: Agents that are.
        kept_ranks: Ranks whose output it writes to files.

    Returns:
        The soft limit that it was, for children: some programs cannot cope
        with a higher one (`select`). None if it has not been raised.

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
    """Does `make_room` for the block, and gives the limit back.

    Args:
        ranks: As in `make_room`.
        hosts: As in `make_room`.
        kept_ranks: As in `make_room`.

    Yields:
        What `make_room` returns.
    """
    before = make_room(ranks=ranks, hosts=hosts, kept_ranks=kept_ranks)
    try:
        yield before
    finally:
        if before is not None:
            restore(before)


def restore(soft: int) -> None:
    """Sets the soft limit to what it was."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
