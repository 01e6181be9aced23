"""Runs a function that touches the disk on rank 0, for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from keras_ring.core import telemetry, topology
from keras_ring.core.objects import broadcast_object
from keras_ring.errors import CheckpointError

_Result = TypeVar("_Result")


def on_rank_zero(
    what: str, function: Callable[[], _Result], name: str
) -> _Result:
    """Runs `function` on rank 0; all ranks get its result, or its error.

    If rank 0 alone raised an error, the others would wait for it in their next
    collective. So all ranks learn the outcome before any of them goes on.

    Args:
        what: String, the action of rank 0 for an error, such as "write x".
        function: Function that rank 0 alone calls. Its result must pickle.
        name: String, the name of the exchange, the same on all ranks.

    Returns:
        What `function` returned.

    Raises:
        CheckpointError: On all ranks, with one text, if `function` raised.
    """
    # This is also the activity of the ranks that wait.
    with telemetry.activity("checkpoint", what):
        return _on_rank_zero(what, function, name)


def _on_rank_zero(
    what: str, function: Callable[[], _Result], name: str
) -> _Result:
    result: Any = None
    failure: str | None = None
    cause: Exception | None = None
    if topology.rank() == 0:
        try:
            result = function()
        except CheckpointError as error:
            failure, cause = str(error), error
        except Exception as error:
            failure, cause = f"{type(error).__name__}: {error}", error
    result, failure = broadcast_object((result, failure), name=name)
    if failure is not None:
        raise CheckpointError(f"Rank 0 could not {what}: {failure}") from cause
    return result  # type: ignore[no-any-return]
