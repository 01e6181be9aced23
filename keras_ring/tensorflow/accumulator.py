"""Accumulates gradients of several passes for optimizers that cannot."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import tensorflow as tf

from keras_ring._typing import Gradient, Tensor, Variable


class Accumulator:
    """Sums of gradients by variable.

    It works eagerly, in a `tf.function` and in TensorFlow 1 graphs. There its
    variables are local ones, which are never saved, and start anew if a
    training resumes from a checkpoint.

    Args:
        passes: Integer, the number of passes after which sums are used.
        average: Boolean, whether sums are divided by that number.
    """

    def __init__(self, passes: int, average: bool) -> None:
        self._passes = passes
        self._factor = 1.0 / passes if average else 1.0
        self._sums: dict[Hashable, Variable] = {}
        self._counts: dict[Hashable, Variable] = {}

    def add(
        self, gradients: Sequence[Gradient], sources: Sequence[Variable]
    ) -> Tensor:
        """Adds the gradients of a pass.

        Args:
            gradients: Tensors and `tf.IndexedSlices`.
            sources: The variable of each.

        Returns:
            A boolean tensor, whether it is time to use the sums.
        """
        with tf.init_scope():
            for source in sources:
                if source.ref() not in self._sums:
                    self._sums[source.ref()] = _local_variable(
                        tf.zeros(source.shape, source.dtype.base_dtype)
                    )
            key = sources[0].ref()
            if key not in self._counts:
                self._counts[key] = _local_variable(tf.zeros([], tf.int64))
        added = [
            self._sums[source.ref()].assign_add(
                tf.cast(tf.convert_to_tensor(gradient), source.dtype.base_dtype)
            )
            for gradient, source in zip(gradients, sources, strict=True)
        ]
        with tf.control_dependencies(_in_graph(added)):
            count = self._counts[key].assign_add(1, read_value=True)
            return tf.equal(tf.math.floormod(count, self._passes), 0)

    def variables(self) -> list[Variable]:
        """Returns the variables that hold sums and counts."""
        return [*self._sums.values(), *self._counts.values()]

    def take(self, sources: Sequence[Variable]) -> list[Tensor]:
        """Returns the sums of variables, and begins anew."""
        sums = [self._sums[source.ref()] for source in sources]
        values = [each.read_value() for each in sums]
        with tf.control_dependencies(_in_graph(values)):
            cleared = [each.assign(tf.zeros_like(each)) for each in sums]
        with tf.control_dependencies(_in_graph(cleared)):
            return [
                tf.identity(value)
                if self._factor == 1.0
                else value * tf.constant(self._factor, value.dtype)
                for value in values
            ]


def _local_variable(value: Tensor) -> Variable:
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        use_resource=True,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
    )


def _in_graph(tensors: list[Tensor]) -> list[Tensor]:
    """Returns the tensors in a graph, or none in eager execution."""
    return [] if tf.executing_eagerly() else tensors
