"""Checks that all ranks end their training together.

A rank that stopped alone would leave the others waiting for its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from keras_ring.core import arrays
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
)
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement.catching_up import exchanges_nothing

# The number of integers that ranks exchange beside whether they go on.
NUM_FIGURES = 16


class Companion(Protocol):
    """An object whose figures ranks exchange at the end of a training."""

    def figures(self) -> Sequence[int]:
        """Returns up to `NUM_FIGURES` integers of this rank."""

    def received(self, by_rank: npt.NDArray[Any]) -> None:
        """Takes the figures of all ranks, a row each, if all have ended."""


_companion: Companion | None = None


def accompany(companion: Companion | None) -> None:
    """Adds figures to the exchange at the end of each epoch.

    In an exchange of their own, ranks might wait for others that have no
    companion.

    Args:
        companion: The `Companion` of the training that begins, or `None` for
            none. Some ranks may have none.
    """
    global _companion
    _companion = companion


def require_same_steps(
    steps: int | None, process_set: ProcessSet = global_process_set
) -> None:
    """Raises an error on all ranks if their epochs have different lengths.

    Args:
        steps: Integer, the number of batches of an epoch on this rank, or
            `None` if it is not known.
        process_set: The process set whose members train together. Defaults to
            all ranks.

    Raises:
        ValueError: If the numbers differ. Ranks that do not know theirs differ
            from those that do.
    """
    by_rank = _gathered(
        [-1 if steps is None else steps], "fit/steps", process_set
    )[:, 0]
    if (by_rank == by_rank[0]).all():
        return
    shown = ", ".join(
        f"rank {rank}: {'unknown' if steps < 0 else int(steps)}"
        for rank, steps in zip(process_set.ranks, by_rank, strict=True)
    )
    raise ValueError(
        "The ranks have different numbers of batches in an epoch, and would "
        f"wait for each other at the end of it ({shown}). Split the data with "
        "`kr.data.shard`, which gives all of them the same number, or set "
        "`steps_per_epoch`."
    )


def require_same_end(
    goes_on: bool, process_set: ProcessSet = global_process_set
) -> None:
    """Raises an error on all ranks if only some go on with another epoch.

    Args:
        goes_on: Boolean, whether this rank goes on with another epoch.
        process_set: The process set whose members train together. Defaults to
            all ranks.

    Raises:
        ConsistencyError: If the ranks differ.
    """
    companion = _companion
    figures = [] if companion is None else list(companion.figures())
    figures += [0] * (NUM_FIGURES - len(figures))
    rows = _gathered([int(goes_on), *figures], "fit/goes_on", process_set)
    by_rank = rows[:, 0]
    if (by_rank == by_rank[0]).all():
        if companion is not None and not goes_on:
            companion.received(rows[:, 1:])
        return
    ended = [
        str(rank)
        for rank, on in zip(process_set.ranks, by_rank, strict=True)
        if not on
    ]
    raise ConsistencyError(
        f"The training has ended on rank {', '.join(ended)} of "
        f"{process_set.size()}, and the others go on with another epoch. A "
        "callback has stopped it by what it saw on that rank alone, or "
        "`epochs` differs. With `kr.callbacks.MetricAverageCallback`, "
        "`EarlyStopping` sees the same metrics on all ranks."
    )


def _gathered(
    numbers: list[int], name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    if exchanges_nothing(process_set):
        return np.array([numbers])
    return arrays.gather_rows(np.array(numbers, np.int64), name, process_set)
