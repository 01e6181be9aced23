"""Collectives that reduce: allreduce and reducescatter, alone or in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring._typing import Gradient, Tensor
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Average, ReduceOp
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.tensorflow import names, sparse
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.tensorflow.op_attributes import Kind
from keras_ring.tensorflow.reduction_calls import (
    check_list,
    run_reductions,
)


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "average device_dense device_sparse compression op prescale_factor "
    "postscale_factor name process_set",
    "name average prescale_factor postscale_factor op compression",
)
@do_not_convert
@described
def allreduce(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Gradient:
    """Reduces a tensor over all ranks; every rank gets the result.

    Ranks are matched by `name`: all must call it with the same name, dtype,
    shape and settings, in any order.

    Args:
        tensor: {{reducible}} A `tf.IndexedSlices` is reduced as one.
        op: {{op}}
        name: {{name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A tensor of the shape and dtype of `tensor`, bitwise equal on all
        ranks. For a `tf.IndexedSlices`: one with the slices of all ranks, in
        the order of the ranks.

    Raises:
        TypeError: If `op` is not a `ReduceOp`.
        ValueError: If two threads make eager collectives without names.
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    mean_loss = kr.allreduce(loss, name="loss")
    ```
    """
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_slices(
            tensor,
            op,
            names.collective_name("allreduce", name),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
            process_set=process_set,
        )
    call = ReductionCall(
        [tensor],
        op,
        names.collective_name("allreduce", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return run_reductions([call], Kind.allreduce)[0][0]


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "average device_dense device_sparse compression op prescale_factor "
    "postscale_factor process_set",
)
@do_not_convert
@described
def grouped_allreduce(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> list[Gradient]:
    """Reduces several tensors as one operation.

    The group is atomic: it is one entry under one name, reduced when every
    rank has all of it. Each `tf.IndexedSlices` in it is a group of its own.

    Args:
        tensors: A list, which may be empty; dtypes may differ. Each in it:
            {{reducible}}
        op: {{op}}
        name: {{name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A list of tensors of the shapes and dtypes of `tensors`, bitwise equal
        on all ranks; of a `tf.IndexedSlices`, one with the slices of all ranks.

    Raises:
        TypeError: If `op` is not a `ReduceOp`, or `tensors` is not a list or
            tuple.
        ValueError: If two threads make eager collectives without names.
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    loss, accuracy = kr.grouped_allreduce([loss, accuracy], name="logs")
    ```
    """
    check_list(tensors)
    if not tensors:
        return []
    name = names.collective_name("grouped_allreduce", name)
    settings = {
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "compression": compression,
        "process_set": process_set,
    }
    reduced: list[Gradient] = list(tensors)
    dense = []
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            reduced[i] = _allreduce_slices(
                tensor, op, f"{name}/slices_{i}", **settings
            )
        else:
            dense.append(i)
    if dense:
        call = ReductionCall([tensors[i] for i in dense], op, name, **settings)
        results = run_reductions([call], Kind.allreduce)[0]
        for i, result in zip(dense, results, strict=True):
            reduced[i] = result
    return reduced


def _allreduce_slices(
    slices: tf.IndexedSlices, op: ReduceOp, name: str, **settings: Any
) -> tf.IndexedSlices:
    return sparse.allreduce_indexed_slices(slices, op, name=name, **settings)


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "device_dense compression op name process_set prescale_factor "
    "postscale_factor",
    "name op",
)
@do_not_convert
@described
def reducescatter(
    tensor: Tensor,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces a tensor over all ranks; every rank gets its part of the rows.

    The rows are divided in the order of the ranks. If their number cannot be
    divided evenly, the first ranks get one row more.

    Args:
        tensor: {{reducible}} Its shape is `[n, ...]`.
        op: {{op}} Not `Adasum`.
        name: {{name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A tensor: this rank's rows of what `allreduce` returns, of shape
        `[n // size + (rank < n % size), ...]`, with the size of the process
        set and the rank in it.

    Raises:
        TypeError: If `op` is not a `ReduceOp`.
        ValueError: If `tensor` is a scalar, or `op` is `Adasum`.
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    my_rows = kr.reducescatter(table, kr.Sum, name="table")
    ```
    """
    call = ReductionCall(
        [tensor],
        op,
        names.collective_name("reducescatter", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return run_reductions([call], Kind.reducescatter)[0][0]


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "device_dense compression op process_set prescale_factor postscale_factor",
)
@do_not_convert
@described
def grouped_reducescatter(
    tensors: Sequence[Tensor],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Reduces and scatters several tensors as one operation.

    Args:
        tensors: A list, which may be empty; dtypes may differ. Each in it, of
            shape `[n_i, ...]`: {{reducible}}
        op: {{op}}
        name: {{name}}
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: {{compression}}
        process_set: {{process_set}}

    Returns:
        A list of tensors: this rank's rows of each, of shape
        `[n_i // size + (rank < n_i % size), ...]`.

    Raises:
        TypeError: If `op` is not a `ReduceOp`, or `tensors` is not a list or
            tuple.
        ValueError: If one of the tensors is a scalar, or `op` is `Adasum`.
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    parts = kr.grouped_reducescatter(gradients, name="gradients")
    ```
    """
    check_list(tensors)
    if not tensors:
        return []
    call = ReductionCall(
        tensors,
        op,
        names.collective_name("grouped_reducescatter", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return run_reductions([call], Kind.reducescatter)[0]
