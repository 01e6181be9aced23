"""Process sets: collectives among some of the ranks of a job."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from keras_ring._runtime import failures, native, topology


class ProcessSet:
    """Some of the ranks of a job, that have collectives of their own.

    It is made of ranks at any time, also before `init()`. It can be used once
    all ranks of the job have added it, by `init(process_sets=[...])` or
    `add_process_set`. Then it is passed to collectives, optimizers and so on
    as `process_set`.

    Inside a set ranks have the order that they have in the job, in whatever
    order they are given: what is concatenated or divided by rank goes by that
    order. `root_rank` is a rank of the job wherever it is asked for.

    A set waits for nothing but its own members: while one is busy, or waits
    for a member that is late, others go on, also those that share ranks with
    it. A rank may be in any number of sets.

    Args:
        ranks: Ranks of the job, each once.

    Attributes:
        process_set_id: Integer, the number of the set in this job, the same
            on all ranks. `None` before it is added and after it is removed.
            No other set of this process ever has it, also after `shutdown()`
            and another `init()`: a function that was traced with a set of an
            earlier job fails, and has to be traced again.
        ranks: A list of integers, ascending.

    Raises:
        ValueError: If there are none, one is negative, or one is there twice.

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
        """The number of members."""
        return len(self.ranks)

    def included(self) -> bool:
        """Whether this process is a member.

        Raises:
            NotInitializedError: Before `init()`.
        """
        return topology.rank() in self.ranks

    def rank(self) -> int:
        """This process's place among the members, from 0 to `size() - 1`.

        Raises:
            NotInitializedError: Before `init()`.
            ValueError: If it is not a member.
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
        # Ranks are what makes a set; its number is that of one job.
        return with_ranks, (list(self._ranks),)


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job, however many there are."""

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
"""All ranks of the job."""

# Those of this job, by their numbers.
_added: dict[int, ProcessSet] = {}


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Adds a process set to the running job.

    All ranks of the job must call it with the same ranks, members or not, and
    it waits for all of them. It may be called at any time, while other sets
    are in use.

    Each set has two threads, connections and memory of its own on each of its
    members, until it is removed. TensorFlow keeps a little for each set that
    eager collectives were ever called for (some 30 KiB). So a program should
    keep its sets and not make one per step.

    Args:
        process_set: A `ProcessSet`, or a list of ranks in any order.

    Returns:
        The `ProcessSet`, which can be used now.

    Raises:
        NotInitializedError: Before `init()`.
        ValueError: On all ranks, if the ranks make different calls, if there
            are no such ranks, or there is such a set already.
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

    As `add_process_set` of each, but the ranks exchange only as much as for
    one. All are added, or none: one that cannot be fails the call, alike on
    all ranks.

    Args:
        process_sets: A list of `ProcessSet`, or of lists of ranks.

    Returns:
        A list of `ProcessSet`, which can be used now.

    Raises:
        NotInitializedError: Before `init()`.
        ValueError: On all ranks, if the ranks make different calls, if there
            are no such ranks, or there is such a set already or twice.
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
    # What cannot be ranks is wrong on all: they shall hear it from each other.
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

    All ranks of the job must call it for the same set, members or not. What
    the set is still waiting for fails; a collective that comes later fails as
    well, also in a function that was traced before.

    Args:
        process_set: A `ProcessSet` that was added.

    Raises:
        NotInitializedError: Before `init()`.
        TypeError: If it is not a `ProcessSet`.
        ValueError: On all ranks, if the ranks make different calls, or the
            set is not there, or is `global_process_set`.
    """
    topology.size()  # or NotInitializedError
    _check_type(process_set)
    number = process_set.process_set_id
    # Also where there is nothing to remove: other ranks may think otherwise,
    # and shall hear it.
    _run("remove_process_set", -1 if number is None else number)
    process_set.process_set_id = None
    if number is not None:
        _added.pop(number, None)


def require_added(
    process_sets: Sequence[ProcessSet | Iterable[int]],
) -> None:
    """Raises an error if one of these is not part of the running job.

    Raises:
        ValueError: So `init` was called again, with others.
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
    """Gives sets numbers in a process that is no rank.

    It may ask them who is a member; a collective on one of them is the error
    that it is on all ranks.
    """
    for number, process_set in enumerate(process_sets, start=1):
        if isinstance(process_set, ProcessSet):
            process_set.process_set_id = number
            _added[number] = process_set
        else:
            _added[number] = ProcessSet(process_set)


def forget_all() -> None:
    """Notes that the job, and with it its sets, is over."""
    for process_set in _added.values():
        process_set.process_set_id = None
    _added.clear()


def fingerprint(
    process_sets: Sequence[ProcessSet | Iterable[int]],
) -> list[list[int]]:
    """Returns what ranks that are given the same sets have in common."""
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
        An integer, for the attribute of an op.

    Raises:
        TypeError: If it is something else.
        ValueError: If it was not added, or removed since.
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
        number: Integer, what `id_of` has returned.

    Raises:
        ValueError: If it was removed.
    """
    if number == 0:
        return global_process_set
    if number not in _added:
        raise ValueError(f"Process set {number} is not part of this job.")
    return _added[number]


def with_ranks(ranks: Iterable[int]) -> ProcessSet:
    """Returns the set of these ranks that this job has, or a new one."""
    ranks = _as_ranks(ranks)
    for process_set in _added.values():
        if process_set.ranks == ranks:
            return process_set
    return ProcessSet(ranks)


def is_alone(process_set: ProcessSet) -> bool:
    """Whether this process is the only member, and has nothing to share."""
    return process_set.size() == 1 and process_set.included()


def shares_nothing(process_set: ProcessSet) -> bool:
    """Whether a model that the members train is this process's own here.

    A program may train one model on each of two sets, and run the same code
    on all ranks: one that is no member of a set trains by itself.

    Raises:
        ValueError: If the set was not added, or removed since.
    """
    if not process_set.included():
        id_of(process_set)
        return True
    return process_set.size() == 1


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
