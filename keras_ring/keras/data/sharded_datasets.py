"""Each rank's part of a `tf.data.Dataset`, or of files that it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_ring._typing import Dataset, Tensor
from keras_ring.core import topology
from keras_ring.keras.agreement import cache_files, datasets
from keras_ring.keras.data.epoch_shuffle import shuffled_by_epoch
from keras_ring.keras.data.part_of_rank import (
    Uneven,
    even_length,
    remembered,
)
from keras_ring.keras.data.sharded_files import files_of_this_rank


def require_same(dataset: Dataset) -> None:
    """Raises an error on all ranks if they are about to split other datasets.

    Args:
        dataset: A `tf.data.Dataset`.

    Raises:
        ValueError: If they differ, or are cached in one file.
    """
    datasets.require_same_dataset(dataset)
    cache_files.require_own_files(
        [dataset], "data/shard/files", before_split=True
    )


def shard(
    dataset: Dataset, uneven: Uneven, shuffle: bool | int, seed: int
) -> Dataset:
    """Returns this rank's part of a dataset, as `kr.data.shard` does."""
    if not tf.executing_eagerly():
        raise ValueError(
            "In a TensorFlow 1 graph, the length of a `tf.data.Dataset` is not "
            "known while the graph is made. Split the arrays that it is made "
            "from by `kr.data.shard`, or use "
            "`dataset.shard(kr.size(), kr.rank())`, which makes unequal parts."
        )
    cardinality = whole = int(dataset.cardinality())
    if not topology.stays_alone():
        if cardinality == tf.data.UNKNOWN_CARDINALITY:
            raise ValueError(
                "The number of elements of this `tf.data.Dataset` is not "
                "known, so ranks could get different numbers of batches and "
                "wait for each other. Give the number with "
                "`dataset.apply(tf.data.experimental.assert_cardinality(n))`, "
                "or make the data set endless with `dataset.repeat()` and set "
                "`steps_per_epoch` in `fit`. Files are counted by "
                "`kr.data.shard(files=...)`. What the tf.data service hands "
                "out to all ranks under one `job_name` needs no shard."
            )
        if cardinality != tf.data.INFINITE_CARDINALITY:
            total = even_length(cardinality, uneven)
            if total > cardinality > 0:
                dataset = dataset.repeat()
            dataset = dataset.take(total)
            cardinality = total // topology.size() if cardinality else 0
        dataset = dataset.shard(topology.size(), topology.rank())
    dataset = _shuffled(dataset, cardinality, shuffle, seed)
    if whole < 0:
        return remembered(dataset, "elements")
    return remembered(dataset, "elements", cardinality, whole)


def shard_files(
    read: Callable[[Tensor], Dataset] | None,
    files: str | Sequence[str | os.PathLike[str]],
    lengths: Sequence[int] | None,
    uneven: Uneven,
    shuffle: bool | int,
    seed: int,
    check: bool,
) -> Dataset:
    """Returns this rank's part of the elements in files."""
    dataset, per_rank = files_of_this_rank(
        tf.data.TFRecordDataset if read is None else read,
        files,
        lengths,
        seed if shuffle else None,
        check,
    )
    if len(per_rank) == 1 and not topology.stays_alone():
        return shard(dataset, uneven, shuffle, seed)
    if uneven == "error" and len(set(per_rank)) > 1:
        raise ValueError(
            f"The files cannot be divided evenly between {topology.size()} "
            f"ranks, which would have {per_rank} elements. Leave out elements "
            'with `uneven="drop"`, or use some of them twice with '
            '`uneven="pad"`.'
        )
    total = min(per_rank) if uneven == "drop" else max(per_rank)
    if total > per_rank[topology.rank()] > 0:
        dataset = dataset.repeat()
    dataset = dataset.take(total)
    dataset = _shuffled(dataset, total, shuffle, seed)
    return remembered(dataset, "elements", total, sum(per_rank))


def _shuffled(
    dataset: Dataset, cardinality: int, shuffle: bool | int, seed: int
) -> Dataset:
    if shuffle is True:
        if cardinality < 0:
            raise ValueError(
                "An endless `tf.data.Dataset`, or one of unknown length, "
                "cannot be shuffled as a whole. Set `shuffle` to the size of "
                "a buffer, such as `shuffle=10_000`."
            )
        shuffle = max(cardinality, 1)
    if shuffle:
        dataset = shuffled_by_epoch(dataset, int(shuffle), seed)
    return dataset
