"""Small exchanges between ranks, with a time limit for each wait.

They serve programs that do not know that they are ranks. A wait can be given
up, and repeated later.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring.core import operations
from keras_ring.core.operations import Kind, Operation
from keras_ring.core.reduce_ops import Max, Min
from keras_ring.errors import CollectiveError, JobEndedError

# Status codes after which no more exchanges are possible.
_OVER = ("CANCELLED", "FAILED_PRECONDITION", "UNAVAILABLE")


class Meeting:
    """An exchange in which all ranks compare a text.

    Args:
        name: String, the same on all ranks. Only one exchange of this name may
            be in progress.
        what: String, the text of this rank.

    Raises:
        JobEndedError: If the job has ended.
    """

    def __init__(self, name: str, what: str) -> None:
        digest = hashlib.sha256(what.encode(errors="replace")).digest()
        numbers = np.frombuffer(digest, np.uint8)
        self._extremes = [
            _start(Kind.allreduce, f"{name}/{text}", numbers, reduce_op=op)
            for text, op in (("min", Min), ("max", Max))
        ]

    def wait(self, seconds: float | None) -> bool:
        """Waits for the other ranks, and returns whether all have come.

        Args:
            seconds: Float, the time limit of each of the two reductions; `None`
                for no limit.

        Raises:
            JobEndedError: If the job has ended.
        """
        return all(_wait(each, seconds) for each in self._extremes)

    def is_same(self) -> bool:
        """Returns whether all texts are equal. All ranks must have come."""
        (lowest,), (highest,) = (each.results() for each in self._extremes)
        return bool(np.array_equal(lowest, highest))


def _start(
    kind: Kind, name: str, values: npt.NDArray[Any], **settings: int
) -> Operation:
    try:
        return operations.start(kind, name, [values], **settings)
    except CollectiveError as error:
        raise _ended(error) from None


def _wait(operation: Operation, seconds: float | None) -> bool:
    try:
        return operation.wait(seconds)
    except CollectiveError as error:
        raise _ended(error) from None


def _ended(error: CollectiveError) -> Exception:
    return JobEndedError(str(error)) if error.code in _OVER else error
