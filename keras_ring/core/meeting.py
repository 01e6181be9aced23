"""Small exchanges of ranks that a program makes before it knows its ranks.

They can be left while they wait, and wait for as long as they are told.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._runtime import topology
from keras_ring.core import operations
from keras_ring.core.operations import Kind, Operation
from keras_ring.core.reduce_ops import Max, Min
from keras_ring.errors import CollectiveError, JobEndedError

# Codes of a status with which ranks meet no more.
_OVER = ("CANCELLED", "FAILED_PRECONDITION", "UNAVAILABLE")


class Meeting:
    """Tells whether all ranks have come with the same.

    Args:
        name: String, the same on all ranks, of which one is under way.
        what: String, what this rank has come with.

    Raises:
        JobEndedError: If ranks meet no more.
    """

    def __init__(self, name: str, what: str) -> None:
        digest = hashlib.sha256(what.encode(errors="replace")).digest()
        numbers = np.frombuffer(digest, np.uint8)
        self._extremes = [
            _start(Kind.allreduce, f"{name}/{text}", numbers, reduce_op=op)
            for text, op in (("min", Min), ("max", Max))
        ]

    def wait(self, seconds: float | None) -> bool:
        """Waits for the others; returns whether all have come.

        Args:
            seconds: Number, for how long; `None` for as long as it takes.

        Raises:
            JobEndedError: If ranks meet no more.
        """
        return all(_wait(each, seconds) for each in self._extremes)

    def is_same(self) -> bool:
        """Whether all have come with the same. They must have come."""
        (lowest,), (highest,) = (each.results() for each in self._extremes)
        return bool(np.array_equal(lowest, highest))


def bytes_of_rank_0(data: bytes, name: str) -> bytes:
    """Returns the bytes that rank 0 has. All ranks must call this.

    Args:
        data: That of rank 0 counts.
        name: String, the same on all ranks.

    Raises:
        JobEndedError: If it cannot be had any more.
    """
    length = _broadcast(np.array([len(data)], np.int64), f"{name}/length")
    if topology.rank() > 0:
        data = bytes(int(length[0]))
    return _broadcast(np.frombuffer(data, np.uint8), f"{name}/data").tobytes()


def _broadcast(values: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    operation = _start(Kind.broadcast, name, values)
    _wait(operation, None)
    return operation.results()[0]


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
