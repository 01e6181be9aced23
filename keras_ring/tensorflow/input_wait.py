"""Measures the wait for a batch that is read in a graph of TensorFlow.

Two operations are put around the reading, each of which takes a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_ring._typing import Structure, Tensor
from keras_ring.tensorflow import libraries, ordering

_Share = Callable[[Any], Any]


def measured(
    take: Callable[[Any], Any], iterator: Any, share: _Share | None
) -> Any:
    """Returns what is read in a graph, with operations around it.

    Args:
        take: Callable that takes an element from an iterator.
        iterator: An iterator of `tf.data`.
        share: As for `input_wait.count_by`, or `None` for all rows.
    """
    ops = libraries.ops()
    # Iterators are on the CPU, and so are the operations around them.
    with tf.device("CPU"):
        wait = ops.keras_ring_input_wait_begin()
    ordering.run_independently(wait.op)
    with tf.control_dependencies([wait]):
        element = take(iterator)
    leaf = _first_leaf(element, share)
    if leaf is not None:
        with tf.device("CPU"):
            end = ops.keras_ring_input_wait_end(wait=wait, element=leaf)
        ordering.run_independently(end)
        if isinstance(element, tf.experimental.Optional):
            # In a loop, the next wait must not begin before this one ends.
            with tf.control_dependencies([end]):
                element = tf.nest.map_structure(
                    tf.identity, element, expand_composites=True
                )
    return element


def _first_leaf(element: Structure, share: _Share | None) -> Tensor | None:
    """Returns a tensor that is ready with the batch, with the counted rows.

    Args:
        element: A batch, or a `tf.experimental.Optional` of one.
        share: As for `measured`.
    """
    if isinstance(element, tf.experimental.Optional):
        rows = tf.cond(
            element.has_value(),
            lambda: _num_rows(element.get_value(), share),
            lambda: tf.constant(0, tf.int64),
        )
        return tf.zeros(tf.reshape(rows, [1]), tf.bool)
    leaves = [
        leaf
        for leaf in tf.nest.flatten(element, expand_composites=True)
        if tf.is_tensor(leaf)
    ]
    if not leaves:
        return None
    if share is None or leaves[0].shape.rank == 0:
        return leaves[0]
    return leaves[0][: share(tf.shape(leaves[0], tf.int64)[0])]


def _num_rows(element: Structure, share: _Share | None) -> Tensor:
    leaf = _first_leaf(element, share)
    if leaf is None or not leaf.shape.rank:
        return tf.constant(0, tf.int64)
    return tf.shape(leaf, out_type=tf.int64)[0]
