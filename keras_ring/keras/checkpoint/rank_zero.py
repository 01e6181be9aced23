"""Runs a function that touches the disk on rank 0, for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from keras_ring.core import telemetry
from keras_ring.core.rank_zero import call_on_rank_zero
from keras_ring.errors import CheckpointError

_Result = TypeVar("_Result")


def on_rank_zero(
    what: str, function: Callable[[], _Result], name: str
) -> _Result:
    """Runs `function` on rank 0; all ranks get its result, or its error.

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
        outcome = call_on_rank_zero(function, name)
    error = outcome.error
    if error is not None:
        is_ours = isinstance(error, CheckpointError)
        text = str(error) if is_ours else outcome.error_text
        raise CheckpointError(f"Rank 0 could not {what}: {text}") from error
    return outcome.result  # type: ignore[no-any-return]
