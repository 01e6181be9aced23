"""The batches of a `tf.data.Dataset` that each rank evaluates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_ring._typing import Dataset, Structure, Tensor
from keras_ring.core.process_sets import ProcessSet
from keras_ring.keras.agreement.datasets import require_same_dataset


def part_of(
    dataset: Dataset,
    steps: int | None,
    process_set: ProcessSet,
    otherwise: str,
) -> tuple[Dataset, bool, Callable[[], list[int]]]:
    """Returns the batches of this rank.

    Args:
        dataset: A `tf.data.Dataset` of batches.
        steps: Integer, the number of batches of all ranks, or `None`.
        process_set: A `kr.ProcessSet`, whose ranks evaluate.
        otherwise: String, the advice of the error if datasets differ.

    Returns:
        A tuple of the batches; whether their results do not count; and a
        function that returns the number of rows of each, once they are read.
    """
    require_same_dataset(dataset, process_set, otherwise)
    if steps is not None:
        dataset = dataset.take(steps)
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise ValueError("A `tf.data.Dataset` without end needs `steps`.")
    size, rank = process_set.size(), process_set.rank()
    mine = dataset.shard(size, rank)
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        is_stand_in = next(iter(mine.take(1)), None) is None
    else:
        is_stand_in = cardinality <= rank
    if is_stand_in:
        mine = dataset.take(1)
    sizes: dict[int, int] = {}

    def note(index: np.int64, rows: np.int64) -> np.int64:
        sizes[int(index)] = int(rows)
        return index

    def noted(index: Tensor, element: Structure) -> Structure:
        rows = tf.shape(tf.nest.flatten(element)[0], tf.int64)[0]
        done = tf.numpy_function(note, [index, rows], tf.int64)
        with tf.control_dependencies([done]):
            return tf.nest.map_structure(
                tf.identity, element, expand_composites=True
            )

    # Sizes are kept by index, because Keras may read the first batch twice.
    noting = mine.enumerate().map(noted)
    return (
        noting,
        is_stand_in,
        lambda: [sizes[index] for index in sorted(sizes)],
    )
