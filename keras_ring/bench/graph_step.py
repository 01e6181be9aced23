"""A case as a `tf.function`, for systems that reduce TensorFlow tensors."""

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
    # Copied, because a tensor made from an array may use NumPy's memory, which
    # gradients never do.
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
    """Returns the body of a `tf.function` that reduces the tensors once.

    The body returns the results themselves: TensorFlow may drop an operation
    that only a control dependency uses.

    Args:
        case: The case to measure.
        inputs: The tensors of `make_inputs`.
        reduce_one: Function of a tensor and its name that reduces it.
        reduce_group: Function of a list of tensors and the name of the group
            that reduces them.
    """
    one = tf.Variable(tf.ones([], case.dtype), trainable=False)

    def step() -> Sequence[Tensor]:
        tensors = [x * one for x in inputs] if case.fresh else list(inputs)
        if case.grouped:
            return reduce_group(tensors, case.name)
        # In reverse order, as gradients are computed.
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
