"""Has all ranks end their training together, or say why they do not.

A rank that stopped alone would leave the others waiting for its gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._ops import arrays
from keras_ring._runtime.process_sets import (
    ProcessSet,
    global_process_set,
    is_alone,
)
from keras_ring.errors import ConsistencyError


def require_same_steps(
    steps: int | None, process_set: ProcessSet = global_process_set
) -> None:
    """Raises an error on all ranks if their epochs have different lengths.

    Args:
        steps: Integer, the number of batches of an epoch on this rank, or
            `None` if it is not known.
        process_set: Whose members train together. Defaults to all ranks.

    Raises:
        ValueError: If it is known and differs.
    """
    by_rank = _gathered(
        -1 if steps is None else steps, "fit/steps", process_set
    )
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
        goes_on: Boolean, whether this rank does.
        process_set: Whose members train together. Defaults to all ranks.

    Raises:
        ConsistencyError: If the ranks differ.
    """
    by_rank = _gathered(int(goes_on), "fit/goes_on", process_set)
    if (by_rank == by_rank[0]).all():
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
    number: int, name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    if is_alone(process_set):
        return np.array([number])
    return arrays.gathered(np.array([number]), name, process_set)[:, 0]
