"""Lets processes into a job that trains, and gives them what its ranks have."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import TypeVar

from keras_ring._typing import Variable
from keras_ring.core import failures, generations, topology
from keras_ring.core.objects import broadcast_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.checkpoint import background_write
from keras_ring.keras.elastic import positions
from keras_ring.keras.optimizer import initial_values

_Result = TypeVar("_Result")


def come_in(variables: Iterable[Variable]) -> None:
    """Waits until the others let in this process, by `let_in`.

    Args:
        variables: Those that ranks do not compare any more. Others have been
            trained, and compared, on all ranks or on none.
    """
    initial_values.note_equal(variables, global_process_set)
    generations.admit()


def let_in(variables: Iterable[Variable]) -> None:
    """Lets in the processes that wait. All ranks must call it.

    Args:
        variables: As in `come_in`.
    """
    # Those that come in know of no write that is under way.
    background_write.wait()
    initial_values.note_equal(variables, global_process_set)
    generations.admit()


def share(give: Callable[[], _Result], *, has_come_in: bool) -> _Result:
    """Gives those that have come in what the others have. All must call it.

    Args:
        give: Function that gives all ranks what rank 0 has.
        has_come_in: Boolean, whether this rank has come in now.

    Returns:
        The result of `give`.

    Raises:
        UnavailableError: If no other rank is left.
    """
    if generations.num_admissions():
        positions.share(has_come_in=has_come_in)
    result = give()
    if not topology.is_elastic():
        return result
    # Those that have come in are behind the others, so this rank 0 has been
    # one of these until now.
    if broadcast_object(has_come_in, 0, name="elastic/root_has_come_in"):
        raise nobody_left()
    return result


def nobody_left() -> Exception:
    """Returns the error of those that have come in, and find nobody."""
    return failures.error_of(
        "UNAVAILABLE",
        "all ranks that had the state of the training were lost before "
        "those that came in had it",
    )


def all_variables() -> list[Variable]:
    """Returns all variables that the program has made."""
    made = backend.variable_class()
    # An instance of another class may be a proxy, which is not to be asked.
    return [each for each in gc.get_objects() if issubclass(type(each), made)]
