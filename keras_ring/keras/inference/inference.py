"""`evaluate` and `predict` by all ranks together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Callback, Model, Structure
from keras_ring.core import arrays
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    is_alone,
)
from keras_ring.keras.backends import backend
from keras_ring.keras.callbacks.metric_average import MetricAverageCallback
from keras_ring.keras.inference.parts import Part, part_of


def evaluate(
    model: Model,
    x: Any = None,
    y: Structure = None,
    batch_size: int | None = None,
    verbose: str | int = "auto",
    sample_weight: Structure = None,
    steps: int | None = None,
    callbacks: Callback | Sequence[Callback] | None = None,
    return_dict: bool = False,
    *,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the loss and the metrics of a model, computed by all ranks.

    The arguments are those of `model.evaluate`, and the result is the same on
    all ranks. The batches are those of one process, and each rank computes its
    part of them. Of arrays and of a `keras.utils.PyDataset` a rank reads its
    part only; it reads all of a `tf.data.Dataset` or a generator. No batch is
    left out or used twice, whatever their number. Metrics are combined as by
    `kr.callbacks.MetricAverageCallback`.

    All ranks must call this, with the same data, which must not be sharded.

    Args:
        model: A `keras.Model` that is compiled, with the same weights on all
            ranks.
        x: Arrays of shape `[n, ...]`, a `tf.data.Dataset` that yields batches
            and has an end, a `keras.utils.PyDataset` or a generator.
        y: Arrays of shape `[n, ...]`, where `x` is of arrays.
        batch_size: Integer, as in `keras.Model.evaluate`, for arrays only.
        verbose: As in `keras.Model.evaluate`. Rank 0 shows its part.
        sample_weight: Arrays of shape `[n]`, where `x` is of arrays.
        steps: Integer, the number of batches of all ranks together. Defaults
            to `None`, which means all.
        callbacks: As in `keras.Model.evaluate`. They see this rank's batches,
            and the results of all.
        return_dict: Boolean, whether the results come as a dictionary by name.
            Defaults to `False`.
        process_set: A `kr.ProcessSet`, whose ranks take part. Defaults to all
            ranks.

    Returns:
        What `model.evaluate` returns in one process, up to rounding.

    Raises:
        ValueError: If there are no data, or they differ between ranks.

    Example:
    ```python
    results = kr.evaluate(model, x, y, return_dict=True)
    ```
    """
    given = {"verbose": verbose, "return_dict": return_dict}
    if is_alone(process_set):
        return model.evaluate(
            x,
            y,
            batch_size=batch_size,
            sample_weight=sample_weight,
            steps=steps,
            callbacks=callbacks,
            **given,
        )
    part = part_of((x, y, sample_weight), batch_size, steps, process_set)
    average = MetricAverageCallback(process_set=process_set)
    average._has_no_data = part.is_stand_in
    x, y, sample_weight = part.data
    return model.evaluate(
        x,
        y,
        batch_size=part.batch_size,
        sample_weight=sample_weight,
        callbacks=[*_as_list(callbacks), average],
        **given,
    )


def predict(
    model: Model,
    x: Any,
    batch_size: int | None = None,
    verbose: str | int = "auto",
    steps: int | None = None,
    callbacks: Callback | Sequence[Callback] | None = None,
    *,
    process_set: ProcessSet = global_process_set,
) -> Structure:
    """Returns the predictions of a model, computed by all ranks.

    The arguments are those of `model.predict`. All ranks get the predictions
    for all data, in the order of the data. The batches are those of one
    process, and each rank computes its part of them, see `kr.evaluate`.

    All ranks must call this, with the same data, which must not be sharded.

    Args:
        model: A `keras.Model`, with the same weights on all ranks.
        x: Arrays of shape `[n, ...]`, a `tf.data.Dataset` that yields batches
            and has an end, a `keras.utils.PyDataset` or a generator.
        batch_size: Integer, as in `keras.Model.predict`, for arrays only.
        verbose: As in `keras.Model.predict`. Rank 0 shows its part.
        steps: Integer, the number of batches of all ranks together. Defaults
            to `None`, which means all.
        callbacks: As in `keras.Model.predict`. They see this rank's batches.
        process_set: A `kr.ProcessSet`, whose ranks take part. Defaults to all
            ranks.

    Returns:
        What `model.predict` returns in one process: an array of shape
        `[n, ...]`, or a structure of arrays.

    Raises:
        ValueError: If there are no data, or they differ between ranks.

    Example:
    ```python
    probabilities = kr.predict(model, x, batch_size=256)
    ```
    """
    if is_alone(process_set):
        return model.predict(
            x,
            batch_size=batch_size,
            verbose=verbose,
            steps=steps,
            callbacks=callbacks,
        )
    part = part_of((x, None, None), batch_size, steps, process_set)
    return predict_part(
        model, part, process_set, verbose=verbose, callbacks=callbacks
    )


def predict_part(
    model: Model, part: Part, process_set: ProcessSet, **arguments: Any
) -> Structure:
    """Returns the predictions for all data; this rank computes its part.

    Args:
        model: A `keras.Model`.
        part: The part of this rank.
        process_set: A `kr.ProcessSet`, whose ranks compute the other parts.
        **arguments: Further arguments of `model.predict`.
    """
    own_part = model.predict(
        part.data[0], batch_size=part.batch_size, **arguments
    )
    return _in_order(own_part, part, process_set)


def _as_list(callbacks: Callback | Sequence[Callback] | None) -> list[Callback]:
    if callbacks is None:
        return []
    return (
        list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    )


def _in_order(
    own_part: Structure, part: Part, process_set: ProcessSet
) -> Structure:
    """Returns the predictions of all ranks, in the order of the data."""
    leaves = [np.asarray(leaf) for leaf in backend.flatten(own_part)]
    if part.is_stand_in:
        leaves = [leaf[:0] for leaf in leaves]
    rows = len(leaves[0]) if leaves else 0
    sizes = part.sizes() if part.sizes else [rows]
    if part.is_stand_in:
        sizes = []
    sizes_by_rank = allgather_object(sizes, "predict/sizes", process_set)
    order = _order(sizes_by_rank)
    gathered = [
        _gathered(leaf, f"predict/{index}", process_set)[order]
        for index, leaf in enumerate(leaves)
    ]
    return backend.pack(own_part, gathered)


def _order(sizes_by_rank: list[list[int]]) -> npt.NDArray[Any]:
    """Returns the index of each row of the data in the gathered rows.

    Args:
        sizes_by_rank: For each rank, the numbers of rows of its pieces. In the
            data, the first pieces of all ranks come first, in the order of
            ranks, then their second pieces, and so on.
    """
    begins = np.cumsum([0, *(sum(sizes) for sizes in sizes_by_rank)])
    done = list(begins[:-1])
    order: list[npt.NDArray[Any]] = [np.arange(0)]
    for turn in range(max(len(sizes) for sizes in sizes_by_rank)):
        for rank, sizes in enumerate(sizes_by_rank):
            if turn < len(sizes):
                begin = done[rank]
                done[rank] = begin + sizes[turn]
                order.append(np.arange(begin, done[rank]))
    return np.concatenate(order)


def _gathered(
    leaf: npt.NDArray[Any], name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    if leaf.dtype.kind in "OSU":
        return np.concatenate(allgather_object(leaf, name, process_set))
    return arrays.allgather(leaf, name=name, process_set=process_set)
