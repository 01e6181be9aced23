"""Lets rank 0 do something that touches the disk, for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from keras_ring._runtime import sight, topology
from keras_ring.core.objects import broadcast_object
from keras_ring.errors import CheckpointError

_Result = TypeVar("_Result")


def on_rank_zero(
    what: str, function: Callable[[], _Result], name: str
) -> _Result:
    """Runs `function` on rank 0; all ranks get its result, or its error.

    A rank that raised alone would leave the others waiting for it in their
    next collective, so all learn how it went before any of them goes on.

    Args:
        what: String, what rank 0 does, for the error: "write x".
        function: Called on rank 0 alone. Its result must pickle.
        name: String, the name of the exchange, the same on all ranks.

    Returns:
        What `function` returned.

    Raises:
        CheckpointError: On all ranks, with one text, if `function` raised.
    """
    # For the others, too, who wait for it.
    with sight.activity("checkpoint", what):
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
