"""Has all ranks end their training together, or say why they do not.

A rank that stopped alone would leave the others waiting for its gradients.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring import basics, ops
from keras_ring._compat import keras
from keras_ring.errors import ConsistencyError
from keras_ring.process_sets import ProcessSet, global_process_set, is_alone

_HOOKED = "_keras_ring_hooked"


def install() -> None:
    """Has `TerminateOnNaN` go by the losses of all ranks. Once is enough.

    It looks at the loss of each batch, which is that of its own rank.
    """
    terminate_on_nan = keras.callbacks.TerminateOnNaN
    on_batch_end = terminate_on_nan.on_batch_end
    if hasattr(on_batch_end, _HOOKED):
        return

    @functools.wraps(on_batch_end)
    def of_all_ranks(
        self: Any, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if basics.is_initialized() and basics.size() > 1:
            loss = (logs or {}).get("loss")
            bad = loss is not None and not np.all(np.isfinite(loss))
            anywhere = ops.allreduce(
                tf.constant(int(bad)),
                ops.Max,
                name="terminate_on_nan",
                process_set=_trained_by(self.model),
            )
            if int(anywhere) and not bad:
                logs = {**(logs or {}), "loss": float("nan")}
        on_batch_end(self, batch, logs)

    setattr(of_all_ranks, _HOOKED, True)
    terminate_on_nan.on_batch_end = of_all_ranks


def _trained_by(model: Any) -> ProcessSet:
    """Returns whose members train a model."""
    from keras_ring.optimizer import distributed_settings

    settings = distributed_settings(getattr(model, "optimizer", None))
    return global_process_set if settings is None else settings.process_set


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


def _gathered(number: int, name: str, process_set: ProcessSet) -> Any:
    if is_alone(process_set):
        return np.array([number])
    return ops.allgather(
        tf.constant([number], tf.int64), name=name, process_set=process_set
    ).numpy()
