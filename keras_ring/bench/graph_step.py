"""A case as a `tf.function`, for whatever reduces TensorFlow's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_ring._typing import Tensor
from keras_ring.bench import contents
from keras_ring.bench.case import Case

ReduceOne = Callable[[Tensor, str], Tensor]
ReduceGroup = Callable[[list[Tensor], str], Sequence[Tensor]]


def make_inputs(case: Case, rank: int) -> list[Tensor]:
    """Returns a rank's tensors, in TensorFlow's own memory."""
    dtype = tf.as_dtype(case.dtype).as_numpy_dtype
    # A copy: a tensor made from an array may lie in NumPy's memory, and no
    # gradient does.
    return [
        tf.raw_ops.DeepCopy(
            x=np.resize(
                contents.period(case.op, index, rank).astype(dtype), shape
            )
        )
        for index, shape in enumerate(case.shapes)
    ]


def make_body(
    case: Case,
    inputs: Sequence[Tensor],
    reduce_one: ReduceOne,
    reduce_group: ReduceGroup,
) -> Callable[[], Sequence[Tensor]]:
    """Returns what belongs into a `tf.function`: it reduces the tensors once.

    It returns the results themselves: an operation that nothing but a control
    dependency uses may be dropped from the graph.

    Args:
        case: What is measured.
        inputs: The tensors of `make_inputs`.
        reduce_one: Takes a tensor and its name.
        reduce_group: Takes a list of tensors and the name of the group.
    """
    one = tf.Variable(tf.ones([], case.dtype), trainable=False)

    def step() -> Sequence[Tensor]:
        tensors = [x * one for x in inputs] if case.fresh else list(inputs)
        if case.grouped:
            return reduce_group(tensors, case.name)
        # Backwards, as gradients come.
        results = [
            reduce_one(tensor, f"{case.name}/{index}")
            for index, tensor in reversed(list(enumerate(tensors)))
        ]
        return results[::-1]

    return step


def make_step(
    case: Case,
    inputs: Sequence[Tensor],
    reduce_one: ReduceOne,
    reduce_group: ReduceGroup,
) -> Callable[[], Sequence[Tensor]]:
    """Returns the `tf.function` of a case; see `make_body`."""
    body = make_body(case, inputs, reduce_one, reduce_group)
    return tf.function(body)  # type: ignore[no-any-return]
