"""Process sets: collectives among some of the ranks of a job."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from keras_ring.core import failures, native, topology


class ProcessSet:
    """A subset of the ranks of a job, with collectives of its own.

    It can be made at any time, even before `init()`. It can be used once all
    ranks of the job have added it, by `init(process_sets=[...])` or
    `add_process_set`. Then it is passed as `process_set` to collectives,
    optimizers and so on.

    The members of a set have the order that they have in the job, whatever the
    order of the argument. Tensors are concatenated and divided in that order.
    `root_rank` is always a rank of the job.

    A set waits for its own members only. While one set is busy or waits for a
    late member, other sets continue, even those that share ranks with it. A
    rank may be in any number of sets.

    Args:
        ranks: Iterable of integers, ranks of the job, each of them once.

    Attributes:
        process_set_id: Integer, the number of the set in this job, the same
            on all ranks. `None` before it is added and after it is removed.
            The number is never used again in this process, even after
            `shutdown()` and another `init()`. So a function that was traced
            with a set of an earlier job fails, and has to be traced again.
        ranks: List of integers, ascending.

    Raises:
        ValueError: If there is no rank, or a rank is negative or given twice.

    Example:
    ```python
    even = kr.ProcessSet([0, 2])
    odd = kr.ProcessSet([1, 3])
    kr.init(process_sets=[even, odd])
    mine = even if even.included() else odd
    mean = kr.allreduce(value, name="mean", process_set=mine)
    ```
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        members = _as_ranks(ranks)
        if not members:
            raise ValueError("A process set must have at least one rank.")
        if members[0] < 0:
            raise ValueError(f"Ranks are not negative. Received: {members}")
        if len(set(members)) < len(members):
            raise ValueError(
                f"Each rank can be in a process set once. Received: {members}"
            )
        self._ranks = members
        self.process_set_id: int | None = None

    @property
    def ranks(self) -> list[int]:
        """The ranks of the job that are members, ascending."""
        return list(self._ranks)

    def size(self) -> int:
        """Returns the number of members."""
        return len(self.ranks)

    def included(self) -> bool:
        """Returns whether this process is a member.

        Raises:
            NotInitializedError: Before `init()`.
        """
        return topology.rank() in self.ranks

    def rank(self) -> int:
        """Returns this process's index among the members.

        Returns:
            Integer from 0 to `size() - 1`.

        Raises:
            NotInitializedError: Before `init()`.
            ValueError: If this process is not a member.
        """
        ranks = self.ranks
        own = topology.rank()
        if own not in ranks:
            raise ValueError(
                f"Rank {own} is not a member of the process set {ranks}. Ask "
                "`included()` first."
            )
        return ranks.index(own)

    def __repr__(self) -> str:
        return (
            f"ProcessSet(ranks={list(self._ranks)}, "
            f"process_set_id={self.process_set_id})"
        )

    def __reduce__(self) -> str | tuple[Any, ...]:
        # A set is defined by its ranks; its number is valid in one job only.
        return with_ranks, (list(self._ranks),)


class _GlobalProcessSet(ProcessSet):
    """The set of all ranks of the current job."""

    def __init__(self) -> None:
        self._ranks = []
        self.process_set_id = 0

    @property
    def ranks(self) -> list[int]:
        return list(range(topology.size()))

    def __repr__(self) -> str:
        return "global_process_set"

    def __reduce__(self) -> str:
        return "global_process_set"


global_process_set: ProcessSet = _GlobalProcessSet()
"""The set of all ranks of the job."""

# The sets of this job, by their numbers.
_added: dict[int, ProcessSet] = {}


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Adds a process set to the running job.

    All ranks of the job must call it with the same ranks, whether they are
    members or not, and it waits for all of them. It may be called while other
    sets are in use.

    Until it is removed, each set has two threads, connections and memory of its
    own on each of its members. TensorFlow keeps about 30 KiB for each set for
    which eager collectives were called. So a program should keep its sets and
    not make one per step.

    Args:
        process_set: A `ProcessSet`, or a list of ranks in any order.

    Returns:
        The `ProcessSet`, which can be used now.

    Raises:
        NotInitializedError: Before `init()`.
        ValueError: On all ranks, if the ranks make different calls, if the job
            does not have these ranks, or if it has such a set already.
        UnavailableError: If a member cannot connect to the others,
            or a rank is lost.

    Example:
    ```python
    first_half = kr.add_process_set(range(kr.size() // 2))
    ```
    """
    return add_process_sets([process_set])[0]


def add_process_sets(
    process_sets: Iterable[ProcessSet | Iterable[int]],
) -> list[ProcessSet]:
    """Adds several process sets to the running job at once.

    It does the same as `add_process_set` for each set, but with the exchange of
    only one call. Either all sets are added or none: if one of them cannot be
    added, the call fails with the same error on all ranks.

    Args:
        process_sets: A list of `ProcessSet`, or of lists of ranks.

    Returns:
        A list of `ProcessSet`, which can be used now.

    Raises:
        NotInitializedError: Before `init()`.
        ValueError: On all ranks, if the ranks make different calls, if the job
            does not have these ranks, or if such a set is there already or is
            given twice.
        UnavailableError: If a member cannot connect to the others,
            or a rank is lost.

    Example:
    ```python
    size, width = kr.size(), 2
    rows = kr.add_process_sets(
        range(first, first + width) for first in range(0, size, width)
    )
    ```
    """
    topology.size()  # or NotInitializedError
    given = list(process_sets)
    # Only types are checked here. Wrong ranks are found by all ranks together.
    lists = fingerprint(given)
    numbers = _run("add_process_sets", lists)
    added = []
    for process_set, ranks, number in zip(given, lists, numbers, strict=True):
        if not isinstance(process_set, ProcessSet):
            process_set = ProcessSet(ranks)
        process_set.process_set_id = number
        _added[number] = process_set
        added.append(process_set)
    return added


def remove_process_set(process_set: ProcessSet) -> None:
    """Removes a process set from the running job.

    All ranks of the job must call it for the same set, whether they are members
    or not. Collectives of the set that are still waiting fail, and so do later
    ones, even in a function that was traced before.

    Args:
        process_set: A `ProcessSet` that was added.

    Raises:
        NotInitializedError: Before `init()`.
        TypeError: If `process_set` is not a `ProcessSet`.
        ValueError: On all ranks, if the ranks make different calls, if the set
            was not added, or if it is `global_process_set`.
    """
    topology.size()  # or NotInitializedError
    _check_type(process_set)
    number = process_set.process_set_id
    # Call it even if there is nothing to remove, because other ranks may have
    # the set, and must get an error.
    _run("remove_process_set", -1 if number is None else number)
    process_set.process_set_id = None
    if number is not None:
        _added.pop(number, None)


def require_added(
    process_sets: Sequence[ProcessSet | Iterable[int]],
) -> None:
    """Raises an error if one of these sets is not part of the running job.

    Raises:
        ValueError: If a set is missing, because a second call of `init` had
            other sets.
    """
    present = [process_set.ranks for process_set in _added.values()]
    missing = [
        ranks for ranks in fingerprint(process_sets) if ranks not in present
    ]
    if missing:
        raise ValueError(
            "keras_ring is initialized, and `process_sets` has sets that are "
            "not part of the job. Give them to the first `kr.init()`, or call "
            "`kr.add_process_set` on all ranks. "
            f"Received: {missing}; present are {present}"
        )


def note_unconnected(
    process_sets: Iterable[ProcessSet | Iterable[int]],
) -> None:
    """Numbers process sets in a process that is not a rank.

    The process can ask for their members. A collective on one of them raises
    the same error as one on all ranks.
    """
    for number, process_set in enumerate(process_sets, start=1):
        if isinstance(process_set, ProcessSet):
            process_set.process_set_id = number
            _added[number] = process_set
        else:
            _added[number] = ProcessSet(process_set)


def forget_all() -> None:
    """Forgets all process sets, because the job has ended."""
    for process_set in _added.values():
        process_set.process_set_id = None
    _added.clear()


def fingerprint(
    process_sets: Sequence[ProcessSet | Iterable[int]],
) -> list[list[int]]:
    """Returns the ranks of each set, which are equal for equal sets."""
    return [
        process_set.ranks
        if isinstance(process_set, ProcessSet)
        else _as_ranks(process_set)
        for process_set in process_sets
    ]


def id_of(process_set: ProcessSet) -> int:
    """Returns the number of a process set that is given to a collective.

    Args:
        process_set: A `ProcessSet`.

    Returns:
        Integer, for the attribute of an op.

    Raises:
        TypeError: If `process_set` is not a `ProcessSet`.
        ValueError: If the set was not added, or was removed.
    """
    _check_type(process_set)
    if process_set.process_set_id is None:
        raise ValueError(
            f"The process set {process_set.ranks} is not part of this job: "
            "give it to `kr.init(process_sets=[...])`, or call "
            "`kr.add_process_set` on all ranks. A set that was removed, or "
            "whose job was shut down, has to be added again."
        )
    return process_set.process_set_id


def by_id(number: int) -> ProcessSet:
    """Returns the process set of an op.

    Args:
        number: Integer, a result of `id_of`.

    Raises:
        ValueError: If the job has no such set.
    """
    if number == 0:
        return global_process_set
    if number not in _added:
        raise ValueError(f"Process set {number} is not part of this job.")
    return _added[number]


def with_ranks(ranks: Iterable[int]) -> ProcessSet:
    """Returns this job's set of these ranks, or a new set."""
    ranks = _as_ranks(ranks)
    for process_set in _added.values():
        if process_set.ranks == ranks:
            return process_set
    return ProcessSet(ranks)


def key_of(process_set: ProcessSet) -> tuple[int, ...]:
    """Returns a key that stays the same when an elastic job loses ranks.

    The ranks that are left have made all exchanges of the set before together.
    """
    if process_set is global_process_set:
        return ()
    return tuple(process_set.ranks)


def is_alone(process_set: ProcessSet) -> bool:
    """Returns whether this process is the only member of a process set.

    It is not in an elastic job, which others may join.
    """
    if topology.is_elastic():
        return False
    return process_set.size() == 1 and process_set.included()


def shares_nothing(process_set: ProcessSet) -> bool:
    """Returns whether this process trains a model of the set by itself.

    That is true of the only member, and of a process that is not a member: a
    program may train one model on each of two sets, and run the same code on
    all ranks.

    Raises:
        ValueError: If this process is not a member, and the set was not added
            or was removed.
    """
    if not process_set.included():
        id_of(process_set)
        return True
    return is_alone(process_set)


def _check_type(process_set: object) -> None:
    if not isinstance(process_set, ProcessSet):
        raise TypeError(
            "`process_set` must be a `keras_ring.ProcessSet`. Received: "
            f"{process_set!r} of type {type(process_set).__name__}"
        )


def _as_ranks(ranks: Iterable[int]) -> list[int]:
    try:
        return sorted(operator.index(rank) for rank in ranks)
    except TypeError:
        raise TypeError(
            "A process set is made of a list of ranks, which are integers. "
            f"Received: {ranks!r}"
        ) from None


def _run(call: str, argument: list[list[int]] | int) -> Any:
    core = native.core()
    try:
        return getattr(core, call)(argument)
    except core.StatusError as error:
        code, message = error.args
    if code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"):
        raise ValueError(message)
    raise failures.error_of("UNAVAILABLE", f"{call}: {message}")
