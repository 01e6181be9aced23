"""Convolution and pooling of empty tensors, for ranks without rows of a batch.

On CPUs TensorFlow's kernels for these do not work on 0 rows. Those of oneDNN
return results of wrong shapes or end the process, `max_pool_with_argmax` raises
an error, and gradients of depthwise kernels are uninitialized memory. So, in a
step on a part of a batch, an operation without rows gets a row of zeros, and
that row is removed from its result.

This is patched where `tf.nn` calls the kernels, so it applies to layers of both
versions of Keras, to `keras.ops` and to calls of programs. The input and the
result each pass a `tf.cond`, which copies nothing if there are rows. The
operation itself is outside of it: inside it would take up to twice as long,
because TensorFlow does not optimize it and its gradient there.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from keras_ring._typing import Structure, Tensor
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import whole_batch
from keras_ring.tensorflow import xla

# The argument that has the rows, by the names of the operations.
_OPERATIONS = {
    "conv2d": "input",
    "conv3d": "input",
    "depthwise_conv2d_native": "input",
    # Transposed convolutions.
    "conv2d_backprop_input": "out_backprop",
    "conv3d_backprop_input_v2": "out_backprop",
    "avg_pool": "value",
    "avg_pool3d": "input",
    "max_pool": "input",
    "max_pool3d": "input",
    "max_pool_with_argmax": "input",
}
# The argument with the sizes of the result, if there is one.
_SIZES = "input_sizes"


def install() -> None:
    """Makes `tf.nn` convolve and pool empty tensors. Needed only once."""
    # The module of the kernels itself is not changed, because gradients use it,
    # too, and the gradient of an operation with rows needs nothing.
    hooks.subscribe(
        events.KERNEL_CALLED,
        _for_no_rows,
        ring=Ring.UNCHANGED,
        purpose="ranks may have no rows of a batch",
    )


def _for_no_rows(operations: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        **{
            **vars(operations),
            **{
                name: _around(getattr(operations, name), rows_of)
                for name, rows_of in _OPERATIONS.items()
            },
        }
    )


def _around(
    operation: Callable[..., Structure], rows_of: str
) -> Callable[..., Structure]:
    parameters = inspect.signature(operation)

    @functools.wraps(operation)
    def compute(*args: Any, **kwargs: Any) -> Structure:
        if not _is_needed():
            return operation(*args, **kwargs)
        given = parameters.bind(*args, **kwargs).arguments
        rows = tf.convert_to_tensor(given[rows_of])
        if rows.shape.rank and rows.shape[0]:
            return operation(*args, **kwargs)
        has_rows = tf.shape(rows)[0] > 0
        given[rows_of] = _with_a_row(rows, has_rows)
        if _SIZES in given:
            result = _transposed(operation, given)
        else:
            result = operation(**given)
        return tf.nest.map_structure(
            lambda each: _without_it(each, has_rows), result
        )

    return compute


def _with_a_row(rows: Tensor, has_rows: Tensor) -> Tensor:
    def row() -> Tensor:
        shape = tf.concat([[1], tf.shape(rows)[1:]], 0)
        # Concatenated with the empty tensor, which is to get a gradient.
        return tf.concat([rows, tf.zeros(shape, rows.dtype)], 0)

    return tf.cond(has_rows, lambda: rows, row)


def _transposed(
    operation: Callable[..., Tensor], given: dict[str, Any]
) -> Tensor:
    """Returns a transposed convolution of a row, for sizes without rows."""
    sizes = tf.convert_to_tensor(given[_SIZES])
    has_row = tf.concat([tf.maximum(sizes[:1], 1), sizes[1:]], 0)
    result = operation(**{**given, _SIZES: has_row})
    # TensorFlow cannot infer the sizes through the maximum.
    known = tensor_util.constant_value_as_shape(sizes)
    result.set_shape([None, *known[1:]])
    return result


def _without_it(result: Tensor, has_rows: Tensor) -> Tensor:
    return tf.cond(has_rows, lambda: result, lambda: result[:0])


def _is_needed() -> bool:
    step = whole_batch.current()
    return (
        step is not None
        and step.is_part
        # XLA has kernels of its own.
        and not xla.is_tracing()
        and not tf.config.get_visible_devices("GPU")
    )
