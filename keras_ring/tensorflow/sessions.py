"""Comparisons of values between ranks that run in sessions of TensorFlow 1.

The variables that count them are in no collection: they are initialized here
only, and each session begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Operation, Tensor, Variable

_Values = Sequence[npt.NDArray[Any]]


def at_first_run(
    compare: Callable[[_Values], None], variables: Sequence[Variable]
) -> Operation:
    """Returns an operation that compares in its first run in a session.

    Args:
        compare: Function of the values of the variables.
        variables: The variables, initialized before the operation runs.
    """
    is_done = _counter(True, tf.bool)

    def compared(*values: Tensor) -> bool:
        compare([value.numpy() for value in values])
        return True

    def compare_and_tell() -> Tensor:
        values = [tf.identity(variable) for variable in variables]
        with tf.control_dependencies(
            [tf.py_function(compared, values, tf.bool)]
        ):
            return _after(is_done.assign(True, read_value=False))

    told = tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=is_done.handle),
        lambda: _after(tf.no_op()),
        compare_and_tell,
    )
    return told.op


def now_and_then(
    compare: Callable[[Sequence[Tensor], int], int],
    variables: Sequence[Variable],
    update: Operation,
    passes: int,
) -> Operation:
    """Returns an operation that updates, and compares after some updates.

    It does not compare before, because the update makes the slots of the
    optimizer.

    Args:
        compare: Function of the values of the variables, and of the number of
            updates since the last comparison. It returns the number until the
            next.
        variables: The variables.
        update: The operation that updates.
        passes: Integer, the number of calls of the optimizer for one update.
    """
    with tf.init_scope():
        # Number of updates until the next comparison.
        left = _counter(0, tf.int64)
    gap = [1]

    def compared(*values: Tensor) -> int:
        gap[0] = compare(values, gap[0])
        return gap[0] * passes

    with tf.control_dependencies([update]):
        is_known = tf.raw_ops.VarIsInitializedOp(resource=left.handle)
        waited = tf.cond(
            is_known,
            left.read_value,
            lambda: tf.constant(passes - 1, tf.int64),
        )

        def compare_and_wait() -> Tensor:
            values = [_read(variable) for variable in variables]
            return tf.py_function(compared, values, tf.int64)

        wait = tf.cond(waited <= 0, compare_and_wait, lambda: waited)
        return left.assign(wait - 1, read_value=False)


def _counter(value: Any, dtype: Any) -> Variable:
    return tf.compat.v1.Variable(
        value, trainable=False, collections=[], use_resource=True, dtype=dtype
    )


def _after(operation: Operation) -> Tensor:
    with tf.control_dependencies([operation]):
        return tf.constant(True)


def _read(variable: Variable) -> Tensor:
    value = variable.read_value()
    value.set_shape(variable.shape)
    return value
