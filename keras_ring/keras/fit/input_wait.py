"""Measures how long a program waits for its input pipeline.

Keras and custom loops take batches from an iterator of `tf.data`: eagerly, or
in the graph of a training step, where two operations are put around it. In both
cases the time and the samples are counted, and a slice is recorded while there
is a timeline. Each of the operations takes a microsecond.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_ring._typing import Structure, Tensor
from keras_ring.core import native, topology
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.tensorflow import libraries, ordering

_PURPOSE = "the time that it takes is measured"


_Share = Callable[[Any], Any]


def _all(rows: Any) -> Any:
    return rows


_share: _Share = _all


def count_by(share: _Share) -> None:
    """Sets the function that tells how many samples of a batch are counted.

    Args:
        share: Callable that takes the number of rows of a batch, an integer or
            an int64 scalar, and returns how many of them this rank uses.
    """
    global _share
    _share = share


def install() -> None:
    """Changes the iterator of TensorFlow. Calling it once is enough."""
    hooks.subscribe(
        events.ITERATOR_READ, _measured, ring=Ring.OBSERVE, purpose=_PURPOSE
    )


def _measured(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(take)
    def measure(self: Any) -> Any:
        if not topology.is_initialized():
            return take(self)
        if tf.executing_eagerly():
            return _eagerly(take, self)
        return _in_graph(take, self)

    return measure


def _eagerly(take: Callable[[Any], Any], iterator: Any) -> Any:
    core = native.core()
    began = time.monotonic_ns()
    before = core.begin_input_wait(began)
    samples = 0
    try:
        element = take(iterator)
        samples = _num_samples(element)
    finally:
        core.end_input_wait(began, before, time.monotonic_ns(), samples)
    return element


def _num_samples(element: Any) -> int:
    for leaf in tf.nest.flatten(element):
        shape = getattr(leaf, "shape", None)
        if shape is not None and shape.rank:
            return int(_share(int(leaf.shape[0] or 0)))
    return 0


def _in_graph(take: Callable[[Any], Any], iterator: Any) -> Any:
    ops = libraries.ops()
    # Iterators are on the CPU, and so are the operations around them.
    with tf.device("CPU"):
        wait = ops.keras_ring_input_wait_begin()
    ordering.run_independently(wait.op)
    with tf.control_dependencies([wait]):
        element = take(iterator)
    leaf = _first_leaf(element)
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


def _first_leaf(element: Structure) -> Tensor | None:
    """Returns a tensor that is ready with the batch, with the counted rows.

    Args:
        element: A batch, or a `tf.experimental.Optional` of one.
    """
    if isinstance(element, tf.experimental.Optional):
        rows = tf.cond(
            element.has_value(),
            lambda: _num_rows(element.get_value()),
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
    if _share is _all or leaves[0].shape.rank == 0:
        return leaves[0]
    return leaves[0][: _share(tf.shape(leaves[0], tf.int64)[0])]


def _num_rows(element: Structure) -> Tensor:
    leaf = _first_leaf(element)
    if leaf is None or not leaf.shape.rank:
        return tf.constant(0, tf.int64)
    return tf.shape(leaf, out_type=tf.int64)[0]
