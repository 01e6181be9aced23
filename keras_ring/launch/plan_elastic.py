"""The numbers of ranks of an elastic job, from the options of its command."""

from collections.abc import Sequence

from keras_ring.launch.hosts import Host
from keras_ring.launch.plan_hosts import MAX_RANKS
from keras_ring.launch.request import RunRequest
from keras_ring.launch.usage import UsageError


def is_elastic(request: RunRequest) -> bool:
    """Returns whether a job is to go on without ranks that it loses."""
    implied = (
        request.min_ranks,
        request.max_ranks,
        request.host_discovery_script,
    )
    return request.elastic or any(text is not None for text in implied)


def check_elastic(request: RunRequest) -> None:
    """Checks that a job can be elastic, if it is to be.

    Raises:
        UsageError: If it cannot.
    """
    if is_elastic(request) and request.auto is not None:
        raise UsageError(
            "--elastic: a program that --auto trains on several ranks divides"
            " its batches by their number at the start, so none may be lost"
        )


def first_size(request: RunRequest, hosts: Sequence[Host]) -> int:
    """Returns the number of ranks at the start, if only its limits are given.

    Raises:
        UsageError: If these are malformed.
    """
    slots = sum(host.slots for host in hosts)
    most = slots if request.max_ranks is None else _number(request, "max")
    return min(slots, most)


def least_slots(request: RunRequest) -> int:
    """Returns the slots without which a job does not start.

    Raises:
        UsageError: If `--min-np` is malformed.
    """
    if isinstance(request.num_ranks, int):
        return request.num_ranks
    return 1 if request.min_ranks is None else _number(request, "min")


def _number(request: RunRequest, which: str) -> int:
    text = request.min_ranks if which == "min" else request.max_ranks
    if text is None or not text.isdecimal() or not 1 <= int(text) <= MAX_RANKS:
        raise UsageError(
            f"--{which}-np {text}: expected a number from 1 to {MAX_RANKS}"
        )
    return int(text)


def min_size(request: RunRequest, size: int) -> int | None:
    """Returns the fewest ranks with which a job goes on.

    Raises:
        UsageError: If `--min-np` is malformed, or more than there are at first.
    """
    if not is_elastic(request):
        return None
    text = "1" if request.min_ranks is None else request.min_ranks
    if not text.isdecimal() or not 1 <= int(text) <= size:
        raise UsageError(
            f"--min-np {text}: expected a number from 1 to {size}, the number"
            " of ranks"
        )
    # A rank that is alone, and stays so, has no other to lose.
    grows = request.max_ranks is not None or request.host_discovery_script
    return None if size == 1 and not grows else int(text)


def max_size(
    request: RunRequest, size: int, hosts: Sequence[Host]
) -> int | None:
    """Returns the number of ranks up to which others are started.

    Args:
        request: `RunRequest` of the user.
        size: Integer, the number of ranks at the start.
        hosts: Sequence of the other `Host`s; empty if all ranks are on this
            one.

    Raises:
        UsageError: If `--max-np` is malformed, or the hosts have fewer slots.
    """
    text = request.max_ranks
    if text is None:
        # As many as the hosts take that are there.
        return MAX_RANKS if request.host_discovery_script else None
    if not text.isdecimal() or not size <= int(text) <= MAX_RANKS:
        raise UsageError(
            f"--max-np {text}: expected a number from {size}, the number of"
            " ranks at the start"
        )
    slots = sum(host.slots for host in hosts)
    if hosts and not request.host_discovery_script and int(text) > slots:
        raise UsageError(
            f"--max-np {text}: these hosts have {slots} slots together"
        )
    return int(text)


def reset_limit(request: RunRequest) -> int | None:
    """Returns how often the ranks of an elastic job may change.

    Raises:
        UsageError: If `--reset-limit` is malformed.
    """
    text = request.reset_limit
    if text is None:
        return None
    if not text.isdecimal():
        raise UsageError(f"--reset-limit {text}: expected a number from 0")
    return int(text)
