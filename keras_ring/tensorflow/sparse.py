"""Reduces `tf.IndexedSlices`: tensors with only some of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_ring._typing import Gradient, Tensor
from keras_ring.core import process_sets, reduce_ops
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.tensorflow import gathers, op_attributes, reduction_calls
from keras_ring.tensorflow.compression import Compression, Compressor


def allreduce_indexed_slices(
    slices: tf.IndexedSlices,
    op: reduce_ops.ReduceOp = reduce_ops.Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Compressor | None = None,
    process_set: ProcessSet = global_process_set,
    keeps_duplicates: bool = False,
) -> tf.IndexedSlices:
    """Sums or averages `tf.IndexedSlices` over all ranks.

    Rows of the same index are added up on each rank; values and indices are
    gathered from all ranks; then rows of the same index are added up again. So
    each index appears once in the result, as optimizers that square gradients
    require: the square of a sum is not the sum of the squares.

    Args:
        slices: A `tf.IndexedSlices`. It may hold no rows on some ranks.
        op: `kr.Average` or `kr.Sum`.
        name: String, the same on all ranks.
        prescale_factor: Float, the factor of values before the reduction.
        postscale_factor: Float, the factor of values after the reduction.
        compression: The format of the values on the wire.
        process_set: As in `allreduce`.
        keeps_duplicates: Boolean. If `True`, no rows are added up: the result
            has the rows of all ranks one after the other, exactly as one
            process has them for the batches of all ranks. Defaults to `False`.

    Returns:
        A `tf.IndexedSlices`, the same on all ranks.

    Raises:
        TypeError: If the type of the values cannot be reduced by `op`.
        ValueError: If `op` is not `kr.Average` or `kr.Sum`.
    """
    if op not in (reduce_ops.Average, reduce_ops.Sum):
        raise ValueError(
            "`tf.IndexedSlices` can be reduced by `kr.Average` and `kr.Sum` "
            "only: a row that a rank does not hold has no value for the "
            "others. Set `sparse_as_dense=True`, or convert it with "
            f"`tf.convert_to_tensor`. Received: op={op!r}"
        )
    reduction_calls.check_reducible(
        op_attributes.Kind.allreduce, op, slices.values
    )
    compression = compression or Compression.none
    name = name or "indexed_slices"
    merged = _as_they_are if keeps_duplicates else _sum_duplicates
    slices = merged(slices)
    if process_sets.is_alone(process_set):
        factor = prescale_factor * postscale_factor
        return slices if factor == 1.0 else scaled_gradient(slices, factor)
    if prescale_factor != 1.0:
        slices = scaled_gradient(slices, prescale_factor)
    values, dtype = compression.compress(slices.values)
    # `ones` counts the ranks that contribute: a joined rank does not.
    values, indices, ones = gathers.grouped_allgather(
        [values, slices.indices, tf.ones([1], tf.int8)],
        name=name,
        process_set=process_set,
    )
    gathered = merged(
        tf.IndexedSlices(
            compression.decompress(values, dtype), indices, slices.dense_shape
        )
    )
    if op is reduce_ops.Average:
        contributors = tf.cast(tf.size(ones), gathered.values.dtype)
        gathered = map_gradient(
            lambda rows: (
                rows / contributors
                if rows.dtype.is_floating
                else rows // contributors
            ),
            gathered,
        )
    return (
        gathered
        if postscale_factor == 1.0
        else scaled_gradient(gathered, postscale_factor)
    )


def scaled_gradient(gradient: Gradient, factor: Any) -> Gradient:
    """Returns a dense or sparse gradient times a float or a scalar."""
    return map_gradient(
        lambda values: reduction_calls.scaled(values, factor), gradient
    )


def values_of(gradient: Gradient) -> Tensor:
    """Returns the values of a gradient as one tensor."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values
    return gradient


def _sum_duplicates(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    indices, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(
        slices.values, positions, tf.shape(indices)[0]
    )
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _as_they_are(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    return slices


def map_gradient(
    function: Callable[[Tensor], Tensor], gradient: Gradient
) -> Gradient:
    """Applies `function` to the values of a gradient.

    Args:
        function: Maps a tensor to one of the same shape.
        gradient: A tensor or `tf.IndexedSlices`.

    Returns:
        An object like `gradient`.
    """
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            function(gradient.values), gradient.indices, gradient.dense_shape
        )
    return function(gradient)
