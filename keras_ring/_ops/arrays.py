"""Collectives of NumPy arrays, whatever executes: for callbacks and checks.

Eagerly they run where they stand. Where a `tf.function` is being traced they
run at once and are no part of it. In a program that has switched off eager
execution they run in a graph and a session of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._ops import gathers, reductions
from keras_ring._ops.reduce_ops import ReduceOp
from keras_ring._runtime.process_sets import ProcessSet
from keras_ring._typing import DType, Tensor, Variable


def is_graph_program() -> bool:
    """Whether this program has switched off eager execution."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def on_arrays(
    function: Callable[[Tensor], Tensor], dtype: DType
) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    """Makes a function of vectors into one of NumPy arrays.

    Args:
        function: Takes and returns a tensor of one dimension.
        dtype: That of the vectors it is given.

    Returns:
        A function that runs it: eagerly, or, in a TensorFlow 1 program, in a
        graph and session of its own.
    """
    # A graph program is eager in the body of a `tf.py_function`.
    if tf.executing_eagerly() or not is_graph_program():
        return functools.partial(_run_eagerly, function, dtype)
    graph = tf.Graph()
    with graph.as_default():
        place = tf.compat.v1.placeholder(dtype, [None])
        result = function(place)
    session = tf.compat.v1.Session(graph=graph)
    return lambda array: session.run(result, {place: array})


def num_bytes(variable: Variable) -> int | None:
    """Returns the size of a variable; `None` where its shape is not known."""
    elements = tf.TensorShape(variable.shape).num_elements()
    if elements is None:
        return None
    size: int = elements * tf.as_dtype(variable.dtype).size
    return size


def gathered(
    array: npt.NDArray[Any], name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    """Gives all ranks the arrays of all ranks, of the same length everywhere.

    Args:
        array: A vector, of a type that collectives have.
        name: String, the name of the exchange, the same on all ranks.
        process_set: Whose members exchange them.

    Returns:
        An array with a row for each rank; of ranks that have joined, none.
    """
    gather = on_arrays(
        lambda vector: gathers.allgather(
            vector, name=name, process_set=process_set
        ),
        tf.as_dtype(array.dtype),
    )
    return gather(array).reshape(-1, len(array))


def reduced(
    array: npt.NDArray[Any], op: ReduceOp, name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    """Gives all ranks a vector that is reduced over all ranks.

    Args:
        array: A vector, of a type that collectives have.
        op: A reduction, such as `kr.Max`.
        name: String, the name of the exchange, the same on all ranks.
        process_set: Whose members exchange it.

    Returns:
        An array.
    """
    reduce = on_arrays(
        lambda vector: reductions.allreduce(
            vector, op, name=name, process_set=process_set
        ),
        tf.as_dtype(array.dtype),
    )
    return reduce(array)


def digest_rows(
    digest: bytes, name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    """Gives all ranks the bytes of all ranks, a row each: see `gathered`."""
    return gathered(np.frombuffer(digest, np.uint8), name, process_set)


def _run_eagerly(
    function: Callable[[Tensor], Tensor], dtype: DType, array: npt.NDArray[Any]
) -> Any:
    if tf.executing_eagerly():
        return function(tf.constant(array, dtype)).numpy()
    with tf.init_scope():
        return function(tf.constant(array, dtype)).numpy()
