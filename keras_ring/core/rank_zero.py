"""Calls that rank 0 makes for all ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from keras_ring.core import arrays, topology
from keras_ring.core.objects import as_bytes, broadcast_in
from keras_ring.errors import AbortedError

_Shared = TypeVar("_Shared")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call that rank 0 has made has ended.

    Attributes:
        result: The result. `None` after an error, and on other ranks if it
            does not pickle.
        error: The exception that the call has raised, or `None`. On other
            ranks a `RuntimeError` with its text if it does not pickle.
        error_text: String, the class and the text of the exception; empty
            without one.
    """

    result: Any = None
    error: Exception | None = None
    error_text: str = ""


def call_on_rank_zero(function: Callable[[], Any], name: str) -> Outcome:
    """Calls a function on rank 0, and tells all ranks how that has ended.

    If rank 0 alone raised an error, the others would wait for it in their next
    collective. So nothing is raised here: all ranks raise the error, or none.

    If an elastic job loses rank 0 before it has told the others, the rank that
    is rank 0 then calls the function, maybe once more.

    Args:
        function: Callable without arguments that rank 0 alone calls.
        name: String, the name of the exchange, the same on all ranks.

    Returns:
        An `Outcome`. On rank 0 it has the result and the exception themselves.
    """
    return _of_rank_zero(lambda now: _called_in(now, function, name))


def array_of_rank_zero(array: arrays.Array, name: str) -> arrays.Array:
    """Returns the array that rank 0 has; each rank has one of this shape.

    If an elastic job loses rank 0 meanwhile, it is that of the next rank 0.

    Args:
        array: A NumPy array.
        name: String, the name of the exchange, the same on all ranks.
    """
    return _of_rank_zero(lambda now: arrays.broadcast_in(now, array, 0, name))


def _of_rank_zero(share: Callable[[Any], _Shared]) -> _Shared:
    """Calls a function of the topology until rank 0 is not lost meanwhile."""
    while True:
        generation = topology.topology()
        try:
            return share(generation)
        except AbortedError:
            if topology.topology().generation == generation.generation:
                raise


def _called_in(
    generation: Any, function: Callable[[], Any], name: str
) -> Outcome:
    if generation.rank > 0:
        received: Outcome = broadcast_in(generation, None, 0, name)
        return received
    outcome = _outcome(function)
    broadcast_in(generation, _that_pickles(outcome), 0, name)
    return outcome


def _outcome(function: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(result=function())
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Outcome(error=error, error_text=text)


def _that_pickles(outcome: Outcome) -> Outcome:
    """Returns an outcome with what other ranks can receive of it."""
    error, text = outcome.error, outcome.error_text
    if error is not None:
        return Outcome(error=error_that_pickles(error), error_text=text)
    return Outcome() if as_bytes(outcome.result) is None else outcome


def error_that_pickles(error: Exception) -> Exception:
    """Returns an exception of rank 0, or one with its text if need be."""
    if as_bytes(error) is not None:
        return error
    return RuntimeError(f"on rank 0: {type(error).__name__}: {error}")
