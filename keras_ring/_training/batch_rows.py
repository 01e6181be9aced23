"""Rows of a batch, which ranks have parts of: the first axis of its tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_ring._runtime.process_sets import ProcessSet
from keras_ring._typing import Structure, Tensor


def rows_of_rank(rows: Any, process_set: ProcessSet) -> Any:
    """Returns how many rows of a batch this rank has, in equal parts.

    Args:
        rows: Integer, or an integer scalar, of the whole batch.
        process_set: Whose ranks have the others.
    """
    size, rank = process_set.size(), process_set.rank()
    return rows * (rank + 1) // size - rows * rank // size


def rows_between(leaf: Structure, begin: Any, end: Any) -> Structure:
    """Returns some rows of a tensor; what has no rows as it is.

    Args:
        leaf: A tensor, of whichever kind.
        begin: Integer, or an integer scalar, of the first.
        end: The same, behind the last.
    """
    if isinstance(leaf, tf.SparseTensor):
        shape = leaf.dense_shape
        start = tf.concat([[begin], tf.zeros_like(shape[1:])], 0)
        size = tf.concat([[end - begin], shape[1:]], 0)
        return tf.sparse.slice(leaf, start, size)
    if not has_rows(leaf):
        return leaf
    return leaf[begin:end]


def num_rows(batch: Structure) -> Tensor:
    """Returns how many rows a batch has: those of its first tensor.

    Args:
        batch: A structure of tensors.

    Raises:
        ValueError: If there is none with rows.
    """
    for leaf in tf.nest.flatten(batch):
        if isinstance(leaf, tf.RaggedTensor):
            return leaf.nrows()
        if isinstance(leaf, tf.SparseTensor):
            return leaf.dense_shape[0]
        if has_rows(leaf):
            return tf.shape(leaf)[0]
    raise ValueError(f"A batch must have rows. Received: {batch!r}")


def static_rows(batch: Structure) -> int | None:
    """Returns how many rows a batch has, where its shape tells.

    Args:
        batch: A structure of tensors.
    """
    for leaf in tf.nest.flatten(batch):
        if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
            return None
        if has_rows(leaf):
            rows: int | None = leaf.shape[0]
            return rows
    return None


def has_rows(leaf: Structure) -> bool:
    """Whether something of a batch has rows: it is no scalar.

    Args:
        leaf: A tensor or array; or anything, which has none.
    """
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return False
    # Of NumPy, or of TensorFlow, which may not know the number of dimensions.
    return getattr(shape, "rank", len(shape) if shape else 0) != 0
