"""Gives each rank its part of the data."""

from __future__ import annotations

import importlib.util
import os
import types
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from keras_ring._typing import PyDataset, Structure
from keras_ring.core import notices, topology
from keras_ring.keras.agreement import same_data
from keras_ring.keras.backends import backend, tf_data
from keras_ring.keras.data.part_of_rank import (
    Uneven,
    even_length,
    remembered,
)
from keras_ring.keras.data.sharded_batches import (
    ShardedPyDataset,
    shard_generator,
)
from keras_ring.keras.lanes import compat


def shard(
    dataset: Any = None,
    *,
    uneven: Uneven = "pad",
    shuffle: bool | int = False,
    seed: int = 0,
    files: str | Sequence[str | os.PathLike[str]] | None = None,
    lengths: Sequence[int] | None = None,
    check: bool = True,
) -> Any:
    """Returns the part of a data set that belongs to this rank.

    Of `size` ranks, rank `r` gets elements `r`, `r + size`, `r + 2 * size`
    and so on. So the batches that the ranks see in one step are, together,
    the batch that one process would have seen, and every rank gets the same
    number of elements, hence of batches.

    If the number of elements is not a multiple of the number of ranks,
    `uneven` says what happens:

    * `"pad"`: every element is used. Ranks that would be one element short
      get one from the start of the data again, so up to `size - 1` elements
      count twice in an epoch.
    * `"drop"`: no element is used twice. Up to `size - 1` elements at the end
      are left out.
    * `"error"`: it is a `ValueError`.

    All ranks must pass the same data in the same order, and the same
    arguments. For arrays and datasets this is compared here, once: a few rows
    of arrays, and the sources and seeds of a `tf.data.Dataset`, from which
    nothing is read. A difference is an error on all ranks. So is a dataset
    that was shuffled without a seed, because its order would differ between
    ranks. All ranks must call this function, like a collective.

    With `files`, each rank reads its own files only. They are divided so that
    ranks have about the same number of elements. A rank reads several of its
    files at a time, in turn. If there are fewer files than ranks, all ranks
    read all files.

    Args:
        dataset: One of:

            - Arrays or tensors, pandas frames and series, or a tuple, list or
              dictionary of them, whose first dimensions have one length. The
              first dimension is split. Sample weights are split with the
              rest: `kr.data.shard((x, y, weights))`.
            - A `tf.data.Dataset` that yields single elements. Shard it before
              `batch`, and early: all ranks read all elements up to here. A
              dataset that yields batches is split batch by batch, so that all
              ranks have the same number of batches; a smaller last batch then
              goes to one rank only. An infinite dataset, made by `repeat`,
              stays infinite, and needs `steps_per_epoch`.
            - A `keras.utils.PyDataset`, which is split batch by batch. Each
              rank reads its batches only.
            - A generator, which is split element by element (batch by batch if
              it yields batches). All ranks read all of it.
            - With `files`, a function from the path of a file, a string
              tensor, to a `tf.data.Dataset` of its elements. Defaults to
              `tf.data.TFRecordDataset`.

            Elements from the `tf.data` service are divided already, if all
            ranks read them with one `job_name`.
        uneven: String, see above. Defaults to `"pad"`.
        shuffle: Boolean or integer. If `True`, the elements are shuffled.
            Arrays are shuffled once, before they are split; `fit` shuffles
            this rank's part in each epoch. The batches of a `PyDataset` are
            shuffled before they are split, anew in each epoch. A
            `tf.data.Dataset` is split first, and each rank shuffles its part
            anew in each epoch, so that no element is lost or doubled whatever
            seeds the ranks have set for TensorFlow. The order depends on
            nothing but `seed` and the number of the epoch. An integer is the
            size of the buffer that a `tf.data.Dataset` is shuffled through;
            `True` holds the whole part of this rank in memory. Generators
            cannot be shuffled. Defaults to `False`.
        seed: Integer, the seed of the shuffle. Defaults to `0`.
        files: Paths of files that hold the data, or a pattern such as
            `"train-*.tfrecord"`. Shuffled files come in an order that depends
            on `seed`. Defaults to `None`.
        lengths: Integers, how many elements each file has, in the order of
            `files` (of the names, for a pattern). Defaults to `None`, which
            means that each rank counts those of some files, by reading them
            once.
        check: Boolean, whether the data of the ranks are compared. Defaults
            to `True`.

    Returns:
        For arrays, a structure like `dataset` with arrays of this rank's
        elements. Otherwise, an object of the same kind as `dataset`.

    Raises:
        TypeError: If `dataset` is of another kind.
        ValueError: If an argument is wrong, if the arrays have different
            lengths, if the number of elements of a `tf.data.Dataset` is not
            known, if `uneven="error"` and it cannot be split evenly, or if
            ranks were given data that differ, or cache them in one file.

    Example:
    ```python
    x, y = kr.data.shard((x, y), shuffle=True)
    model.fit(x, y, batch_size=32)

    dataset = kr.data.shard(dataset, shuffle=10_000).batch(32)
    model.fit(dataset)

    records = kr.data.shard(files="train-*.tfrecord", shuffle=10_000)
    model.fit(records.map(parse).batch(32))
    ```

    In an elastic job the part of a rank that is lost is not trained on any
    more; see `kr.data.batches`.
    """
    if uneven not in ("pad", "drop", "error"):
        raise ValueError(
            '`uneven` must be "pad", "drop" or "error". Received: '
            f"uneven={uneven!r}"
        )
    _say_what_a_loss_costs()
    if files is None and lengths is not None:
        raise ValueError("`lengths` are those of `files`, which is None.")
    if files is not None or tf_data.is_dataset(dataset):
        # Needs TensorFlow, whatever Keras computes with.
        if importlib.util.find_spec("tensorflow") is None:
            raise ModuleNotFoundError(
                "`kr.data.shard(files=...)` reads files by `tf.data`, and "
                "there is no TensorFlow here. Install it, or read the files "
                "of this rank yourself: `kr.data.shard(numpy.array(paths))`.",
                name="tensorflow",
            )
        from keras_ring.keras.data import sharded_datasets

        if files is not None:
            return sharded_datasets.shard_files(
                dataset, files, lengths, uneven, shuffle, seed, check
            )
        if check:
            sharded_datasets.require_same(dataset)
        return sharded_datasets.shard(dataset, uneven, shuffle, seed)
    if isinstance(dataset, compat.Dataset):
        return _shard_py_dataset(dataset, uneven, bool(shuffle), seed)
    if isinstance(dataset, types.GeneratorType):
        if shuffle:
            raise ValueError(
                "A generator cannot be shuffled. Shuffle what it is made from, "
                "or make it a `tf.data.Dataset` with "
                "`tf.data.Dataset.from_generator`."
            )
        if topology.stays_alone():
            return dataset
        generator = shard_generator(dataset, uneven)
        return remembered(generator, "elements")
    return _shard_arrays(dataset, uneven, bool(shuffle), seed, check)


def _say_what_a_loss_costs() -> None:
    if topology.is_elastic():
        notices.say(
            "the parts of kr.data.shard are fixed: if this job loses a rank, "
            "its part is not trained on any more. kr.data.batches deals "
            "batches out to those who are left."
        )


def batches(
    data: Any,
    batch_size: int | None = None,
    *,
    shuffle: bool = False,
    seed: int = 0,
    uneven: Literal["pad", "drop"] = "pad",
    check: bool = True,
) -> Any:
    """Returns batches that are dealt out anew when an elastic job loses a rank.

    In each step rank `r` of `size` trains on one batch, the `r`-th of the next
    `size`. When a job of `keras-ring run --elastic` loses a rank, the batches
    that this rank has not trained on, and those of a step that was discarded,
    go to the ranks that are left. So each batch of an epoch is trained on once,
    in a step that counts, whoever is lost and whenever. The parts of
    `kr.data.shard` are fixed: those of a lost rank are not trained on any more.

    Give the dataset to `fit` as it is, or loop over it. Whoever asks for a
    batch has to have trained on the one before, by one update of an elastic
    optimizer: do not add `prefetch`, `map` or `batch` to it. The next batch is
    read in another thread meanwhile.

    All ranks must pass the same data in the same order, and the same
    arguments, and must call this function, like a collective.

    Args:
        data: One of:

            - Arrays or tensors, pandas frames and series, or a tuple, list or
              dictionary of them, whose first dimensions have one length.
            - A `keras.utils.PyDataset` with an end.
        batch_size: Integer, the rows of a batch of arrays; the last one may be
            smaller. For a `PyDataset`, which has batches, `None`.
        shuffle: Boolean, whether rows of arrays, or the batches of a
            `PyDataset`, are shuffled anew in each epoch. The order depends on
            nothing but `seed` and the number of the epoch. Defaults to
            `False`.
        seed: Integer, the seed of the shuffle. Defaults to `0`.
        uneven: String, what happens in the last step of an epoch, if there is
            not a batch for each rank: `"pad"`: ranks without one take those
            from the start of the epoch again. `"drop"`: what is left is not
            used. Defaults to `"pad"`.
        check: Boolean, whether arrays of the ranks are compared. Defaults to
            `True`.

    Returns:
        A `tf.data.Dataset` of batches of this rank. How many there are in an
        epoch is not known before its end.

    Raises:
        TypeError: If `data` is of another kind.
        ValueError: If an argument is wrong, if the arrays have different
            lengths, or if ranks were given data that differ.

    Example:
    ```python
    data = kr.data.batches((x, y), batch_size=32, shuffle=True)
    model.fit(data, epochs=10)
    ```
    """
    if uneven not in ("pad", "drop"):
        raise ValueError(
            f'`uneven` must be "pad" or "drop". Received: uneven={uneven!r}'
        )
    if backend.name() != "tensorflow":
        raise NotImplementedError(
            "`kr.data.batches` is a `tf.data.Dataset`, for Keras on "
            f"TensorFlow. Received: Keras on {backend.name()}"
        )
    from keras_ring.keras.data import dealt_batches

    if isinstance(data, compat.Dataset):
        count = compat.num_batches(data)
        if count is None or batch_size is not None:
            raise ValueError(
                "A `PyDataset` needs an end, and makes its batches itself. "
                f"Received: {count} batches, batch_size={batch_size}"
            )
        made = dealt_batches.of_py_dataset(data, count, shuffle, seed)
        return dealt_batches.dealt(made, pad=uneven == "pad")
    leaves, _ = _leaves_of_arrays(data)
    if batch_size is None or batch_size < 1:
        raise ValueError(
            "`batch_size` must be at least 1 for arrays. Received: "
            f"batch_size={batch_size}"
        )
    if check:
        same_data.require_same_arrays(leaves)
    made = dealt_batches.of_arrays(data, batch_size, shuffle, seed)
    return dealt_batches.dealt(made, pad=uneven == "pad")


def _shard_arrays(
    arrays: Structure, uneven: Uneven, shuffle: bool, seed: int, check: bool
) -> Structure:
    leaves, length = _leaves_of_arrays(arrays)
    if check:
        same_data.require_same_arrays(leaves)
    total = even_length(length, uneven)
    if topology.stays_alone() and not shuffle:
        return arrays
    order = (
        np.random.default_rng(seed).permutation(length)
        if shuffle
        else np.arange(length)
    )
    # `resize` pads by repeating elements from the start.
    chosen: npt.NDArray[Any] = np.resize(order, total)[
        topology.rank() :: topology.size()
    ]
    part = backend.map_structure(
        lambda leaf: same_data.take_rows(leaf, chosen), arrays
    )
    return remembered(part, "samples", len(chosen), length)


def _leaves_of_arrays(arrays: Structure) -> tuple[list[Any], int]:
    """Returns the arrays in a structure, and their one length."""
    leaves = backend.flatten(arrays)
    for leaf in leaves:
        shape = getattr(leaf, "shape", None)
        if shape is None or not hasattr(leaf, "__getitem__"):
            raise TypeError(
                "`dataset` must be a `tf.data.Dataset`, an array, or a tuple, "
                "list or dictionary of arrays, a `keras.utils.PyDataset` or a "
                "generator. Received, in it, an object of "
                f"type {type(leaf).__name__}. A list of numbers is an array "
                "after `numpy.asarray`."
            )
        if len(shape) == 0:
            raise ValueError(
                "An array without dimensions cannot be split. Received: "
                f"{leaf!r}"
            )
    if not leaves:
        raise ValueError("There is nothing to split in an empty structure.")
    lengths = [int(leaf.shape[0]) for leaf in leaves]
    if len(set(lengths)) > 1:
        raise ValueError(
            "All arrays must have the same length. Received arrays of lengths "
            f"{lengths}"
        )
    return list(leaves), lengths[0]


def _shard_py_dataset(
    dataset: PyDataset, uneven: Uneven, shuffle: bool, seed: int
) -> PyDataset:
    count = compat.num_batches(dataset)
    if shuffle and count is None:
        raise ValueError("A `PyDataset` without end cannot be shuffled.")
    total = None if count is None else even_length(count, uneven)
    if topology.stays_alone() and not shuffle:
        return dataset
    part = ShardedPyDataset(dataset, total, shuffle, seed)
    return remembered(part, "batches", part.num_batches, count)
