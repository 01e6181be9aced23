"""Divides files between ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_ring._typing import Dataset, Tensor
from keras_ring.core import topology
from keras_ring.core.objects import allgather_object
from keras_ring.keras.agreement import same_data

_FILES_AT_A_TIME = 16


def files_of_this_rank(
    read: Callable[[Tensor], Dataset],
    files: str | Sequence[str | os.PathLike[str]],
    lengths: Sequence[int] | None,
    seed: int | None,
    check: bool,
) -> tuple[Dataset, list[int]]:
    """Returns the elements in this rank's files, and their number.

    Args:
        read: Function from the path of a file to a `tf.data.Dataset`.
        files: Paths, or a pattern.
        lengths: Integers, the number of elements of each file, or `None`.
        seed: Integer, the seed of the order of files, or `None`.
        check: Boolean, whether the lists of files of the ranks are compared.

    Returns:
        A `tf.data.Dataset` of known length with the elements of this rank, and
        a list with the number of elements of each rank. If there are fewer
        files than ranks, the dataset has the elements of all files, and the
        list has one entry, the total number.

    Raises:
        ValueError: If there are no files or elements, if the number of
            `lengths` is not that of the files, or if the files differ between
            ranks.
    """
    paths = _paths(files)
    if lengths is not None and len(lengths) != len(paths):
        raise ValueError(
            f"`lengths` must have a number for each of {len(paths)} files. "
            f"Received: {len(lengths)} numbers"
        )
    if check:
        same_data.require_same_files(paths)
    counts = _counted(read, paths) if lengths is None else list(lengths)
    if sum(counts) == 0:
        raise ValueError(
            f"There are no elements in {len(paths)} files, the first being "
            f"{paths[0]}"
        )
    if len(paths) < topology.size():
        return _interleaved(read, paths, sum(counts), seed), [sum(counts)]
    parts = divided(counts, topology.size())
    mine = parts[topology.rank()]
    per_rank = [sum(counts[index] for index in part) for part in parts]
    if min(per_rank) == 0:
        raise ValueError(
            f"{len(paths)} files cannot be divided between {topology.size()} "
            f"ranks: only {sum(n > 0 for n in counts)} of them have elements."
        )
    dataset = _interleaved(
        read,
        [paths[index] for index in mine],
        per_rank[topology.rank()],
        seed,
    )
    return dataset, per_rank


def divided(counts: Sequence[int], size: int) -> list[list[int]]:
    """Divides files so that all parts have about the same size.

    The largest file comes first, and each file goes to the part that has the
    fewest elements so far. The result is the same on all ranks.

    Args:
        counts: Integers, the number of elements of each file.
        size: Integer, the number of parts.

    Returns:
        For each part, the indices of its files, in ascending order.
    """
    parts: list[list[int]] = [[] for _ in range(size)]
    totals = [0] * size
    for index in sorted(range(len(counts)), key=lambda p: (-counts[p], p)):
        least = min(range(size), key=lambda r: (totals[r], len(parts[r]), r))
        parts[least].append(index)
        totals[least] += counts[index]
    return [sorted(part) for part in parts]


def _paths(files: str | Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(files, str):
        paths = sorted(tf.io.gfile.glob(files))
    else:
        paths = [os.fspath(file) for file in files]
    if not paths:
        raise ValueError(f"There are no files. Received: files={files!r}")
    return paths


def _counted(read: Callable[[Tensor], Dataset], paths: list[str]) -> list[int]:
    """Returns the number of elements of each file, counted on one rank each."""
    mine = {
        index: _length(read(tf.constant(paths[index])))
        for index in range(topology.rank(), len(paths), topology.size())
    }
    if topology.stays_alone():
        return [mine[index] for index in range(len(paths))]
    of_all: dict[int, int] = {}
    for counted in allgather_object(mine, "data/files"):
        of_all.update(counted)
    return [of_all[index] for index in range(len(paths))]


def _length(dataset: Dataset) -> int:
    known = int(dataset.cardinality())
    if known == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "`dataset` must make a `tf.data.Dataset` with an end of each file."
        )
    if known != tf.data.UNKNOWN_CARDINALITY:
        return known
    zero = np.int64(0)
    return int(dataset.reduce(zero, lambda count, _: count + 1))


def _interleaved(
    read: Callable[[Tensor], Dataset],
    paths: list[str],
    count: int,
    seed: int | None,
) -> Dataset:
    """Returns the elements of files, a piece of each file in turn."""
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(paths))
        paths = [paths[index] for index in order]
    dataset = tf.data.Dataset.from_tensor_slices(paths).interleave(
        read,
        cycle_length=min(len(paths), _FILES_AT_A_TIME),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return dataset.apply(tf.data.experimental.assert_cardinality(count))
