"""Gathers the rows of all ranks in a step on parts of a batch.

A function that compares rows, or divides by a number other than theirs, needs
the whole batch. If each rank computes it from the rows of all ranks, with the
result L, rank `r` needs the gradient by its own rows `y_r`, and

    dL/dw = sum_r dL/dy_r dy_r/dw = mean_r n dL/dy_r dy_r/dw

of `n` ranks. Gradients in a step have the factor `f_r = n b_r / B`
(`whole_batch`), so in the backward pass the gradient of the own rows is divided
by `b_r / B`. A weight of the function itself gets the whole gradient on each
rank. The factors of the ranks add up to `n`, so its mean is right.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_ring._typing import Structure, Tensor
from keras_ring.core import reduce_ops
from keras_ring.keras.optimizer.whole_batch import Step
from keras_ring.tensorflow import gathers, reductions, topology_ops, xla
from keras_ring.tensorflow.names import unique_names


def of_all_ranks(step: Step, values: Structure) -> Structure:
    """Returns tensors with the rows of all ranks.

    Scalars, and objects that are not tensors, are returned unchanged. All ranks
    must call this.

    Args:
        step: A step on a part of a batch.
        values: A structure of tensors of this rank's rows.
    """
    return tf.nest.map_structure(lambda leaf: _of_leaf(step, leaf), values)


def _of_leaf(step: Step, leaf: Structure) -> Structure:
    whole = step.whole_of(leaf)
    if whole is not None:
        return whole
    if isinstance(leaf, tf.RaggedTensor):
        whole = _of_ragged(step, leaf)
    elif not tf.is_tensor(leaf) or leaf.shape.rank == 0:
        return leaf
    elif isinstance(leaf, tf.SparseTensor):
        raise TypeError(
            "A sparse tensor that a step has made of its rows cannot be put "
            f"together. Received: {leaf}"
        )
    else:
        whole = _of_tensor(step, leaf)
    step.note_whole(leaf, whole)
    return whole


def _of_ragged(step: Step, leaf: tf.RaggedTensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_nested_row_lengths(
        _of_tensor(step, leaf.flat_values),
        [_of_tensor(step, each) for each in leaf.nested_row_lengths()],
        validate=False,
    )


def _of_tensor(step: Step, tensor: Tensor) -> Tensor:
    (name,) = unique_names("whole_batch", ["rows_of_all"])
    gather = _added if xla.is_tracing() else _gathered

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def rows_of_all(own: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        whole, begin = gather(step, own, name)

        def gradient(upstream: Tensor) -> Tensor:
            # Made dense, because the gradient of some rows is sparse.
            upstream = tf.convert_to_tensor(upstream)
            part = upstream[begin : begin + tf.shape(own, tf.int64)[0]]
            share = tf.cast(step.share(), tf.float64)
            factor = tf.math.divide_no_nan(tf.ones_like(share), share)
            return part * tf.cast(factor, part.dtype)

        return whole, gradient

    whole: Tensor = rows_of_all(tensor)
    rows = step.static_rows_with(tensor.shape[0])
    whole.set_shape([rows, *tensor.shape[1:]])
    return whole


def _gathered(step: Step, own: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Returns the rows of all ranks, and the index of this rank's first row."""
    whole, counts = gathers.grouped_allgather(
        [own, tf.shape(own, tf.int64)[:1]],
        name=name,
        process_set=step.process_set,
    )
    rank = topology_ops.rank_in_graph(step.process_set, [counts])
    return whole, tf.reduce_sum(counts[:rank])


def _added(step: Step, own: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Does the same for XLA, which has no operations of unknown shapes."""
    begin, rows = step.row_range_for_xla()
    before = tf.cast(begin, tf.int64)
    after = tf.cast(rows, tf.int64) - before - tf.shape(own, tf.int64)[0]
    padded = tf.concat(
        [_zeros(own, before), _number(own), _zeros(own, after)], 0
    )
    whole = reductions.allreduce(
        padded, reduce_ops.Sum, name=name, process_set=step.process_set
    )
    return tf.cast(whole, own.dtype), before


def _number(tensor: Tensor) -> Tensor:
    return tf.cast(tensor, tf.int32) if tensor.dtype.is_bool else tensor


def _zeros(own: Tensor, rows: Tensor) -> Tensor:
    shape = tf.concat([[rows], tf.shape(own, tf.int64)[1:]], 0)
    return tf.zeros(shape, _number(own).dtype)
