"""Rows of a batch, which ranks share: the first axis of its tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_ring._typing import Structure, Tensor
from keras_ring.core.process_sets import ProcessSet
from keras_ring.tensorflow import topology_ops


def rows_of_rank(rows: Any, process_set: ProcessSet) -> Any:
    """Returns the number of this rank's rows if a batch is divided evenly.

    Args:
        rows: Integer or integer scalar, the rows of the whole batch.
        process_set: A `kr.ProcessSet`, whose ranks share the batch.
    """
    size = topology_ops.size_in_graph(process_set)
    rank = topology_ops.rank_in_graph(process_set)
    return rows * (rank + 1) // size - rows * rank // size


def rows_between(leaf: Structure, begin: Any, end: Any) -> Structure:
    """Returns a range of rows of a tensor, or a leaf without rows unchanged.

    Args:
        leaf: A tensor of any kind.
        begin: Integer or integer scalar, the first row.
        end: Integer or integer scalar, the row after the last.
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
    """Returns the number of rows of a batch, by its first tensor with rows.

    Args:
        batch: A structure of tensors.

    Raises:
        ValueError: If no tensor has rows.
    """
    for leaf in tf.nest.flatten(batch):
        if isinstance(leaf, tf.RaggedTensor):
            return leaf.nrows()
        if isinstance(leaf, tf.SparseTensor):
            return leaf.dense_shape[0]
        if has_rows(leaf):
            return tf.shape(leaf)[0]
    raise ValueError(f"A batch must have rows. Received: {batch!r}")


def row_count(leaf: Structure) -> Any:
    """Returns the number of rows of a leaf: an integer, a scalar, or `None`.

    It is an integer if the static shape has it, and `None` without rows.

    Args:
        leaf: A tensor of any kind.
    """
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows()
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if not has_rows(leaf):
        return None
    rows = leaf.shape[0]
    return tf.shape(leaf, tf.int64)[0] if rows is None else rows


def static_rows(batch: Structure) -> int | None:
    """Returns the number of rows of a batch if its static shape has it.

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
    """Returns whether a leaf of a batch has rows: it is not a scalar.

    Args:
        leaf: A tensor or array. Any other object has no rows.
    """
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return False
    # A shape of NumPy or of TensorFlow, whose rank may be unknown (`None`).
    return getattr(shape, "rank", len(shape) if shape else 0) != 0
