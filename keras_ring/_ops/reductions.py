"""Collectives that reduce: allreduce and reducescatter, alone or in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring._ops import names, sparse
from keras_ring._ops.autograph import do_not_convert
from keras_ring._ops.horovod_arguments import takes_horovods
from keras_ring._ops.reduce_ops import Average, Kind, ReduceOp
from keras_ring._ops.reduction_calls import (
    AllreduceCall,
    check_list,
    run_reductions,
)
from keras_ring._runtime.process_sets import ProcessSet, global_process_set


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "average device_dense device_sparse compression op prescale_factor "
    "postscale_factor name process_set",
    "name average prescale_factor postscale_factor op compression",
)
@do_not_convert
def allreduce(
    tensor: Any,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a tensor over all ranks; every rank gets the result.

    Ranks are matched by `name`: all must call it with the same name, dtype,
    shape and settings, in any order.

    Args:
        tensor: A tensor (or what converts to one), Keras or TensorFlow
            variable, of the same shape on every rank. uint8, int8, uint16,
            int16, int32, int64, float16, bfloat16, float32 or float64.
            float16 and bfloat16 are summed in float32 and rounded once. A
            `tf.IndexedSlices` is reduced as one: see `Returns`.
        op: A `ReduceOp`. `Average` of integers is the exact sum, divided and
            rounded down, as in NumPy. `Adasum` is of floating dtypes only.
            Defaults to `Average`.
        name: String, the same on all ranks. Defaults to the place in the
            program: the function that is traced, the loop or branch in it, and
            which of the collectives there. A name that is given again in one
            function gets a number behind it. In eager execution those without
            a name share one, and only one thread may make them.
        prescale_factor: Float, multiplied to each rank's tensor before the
            reduction. Products of integers are computed in float64 and lose
            what is behind the point. Defaults to `1.0`.
        postscale_factor: Float, multiplied to the result, in the same way.
            Defaults to `1.0`.
        compression: One of `keras_ring.Compression`: wide floating-point
            tensors travel as float16 or bfloat16, and are rounded to that
            before and after the reduction. Or an object with the methods of
            `keras_ring._ops.compression.Compressor`. Defaults to none.
        process_set: A `ProcessSet` of which this rank is a member. Only its
            ranks take part, and `Average` divides by its size. Defaults to
            all ranks.

    Returns:
        A tensor like `tensor`, bitwise equal on all ranks. For
        `tf.IndexedSlices`: one with the slices of all ranks.

    Raises:
        TypeError: If `op` is not a `ReduceOp`.
        ValueError: If two threads make eager collectives without names.
        tf.errors.FailedPreconditionError: If the ranks disagree; the text,
            the same on all of them, names the tensor, the ranks and values.
        tf.errors.InvalidArgumentError: If they agree on something impossible,
            or the name is in flight on this rank, or this rank is not a
            member of the process set.
        tf.errors.UnavailableError: If a rank is lost or has left the job.

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
    call = AllreduceCall(
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
def grouped_allreduce(
    tensors: Sequence[Any],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduces several tensors as one operation.

    The group is atomic: it is one entry under one name, reduced when every
    rank has all of it. Each `tf.IndexedSlices` in it is a group of its own.

    Args:
        tensors: A list of tensors as in `allreduce`; dtypes may differ. May be
            empty.
        op: As in `allreduce`.
        name: As in `allreduce`.
        prescale_factor: As in `allreduce`.
        postscale_factor: As in `allreduce`.
        compression: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        A list of tensors like `tensors`; of a `tf.IndexedSlices`, one with
        the slices of all ranks.

    Raises:
        TypeError: As in `allreduce`, and if `tensors` is not a list or tuple.

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
    reduced: list[Any] = list(tensors)
    dense = []
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            reduced[i] = _allreduce_slices(
                tensor, op, f"{name}/slices_{i}", **settings
            )
        else:
            dense.append(i)
    if dense:
        call = AllreduceCall([tensors[i] for i in dense], op, name, **settings)
        results = run_reductions([call], Kind.allreduce)[0]
        for i, result in zip(dense, results, strict=True):
            reduced[i] = result
    return reduced


def _allreduce_slices(slices: Any, op: Any, name: str, **settings: Any) -> Any:
    return sparse.allreduce_indexed_slices(slices, op, name=name, **settings)


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "device_dense compression op name process_set prescale_factor "
    "postscale_factor",
    "name op",
)
@do_not_convert
def reducescatter(
    tensor: Any,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a tensor over all ranks; every rank gets its part of the rows.

    The rows are divided in the order of the ranks. Where their number cannot
    be divided, the first ranks get one more.

    Args:
        tensor: As in `allreduce`, of at least one dimension.
        op: As in `allreduce`, but not `Adasum`.
        name: As in `allreduce`.
        prescale_factor: As in `allreduce`.
        postscale_factor: As in `allreduce`.
        compression: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        A tensor: this rank's rows of what `allreduce` returns.

    Raises:
        TypeError: As in `allreduce`.
        ValueError: If `tensor` is a scalar, or `op` is `Adasum`.
        tf.errors.OpError: As in `allreduce`.

    Example:
    ```python
    my_rows = kr.reducescatter(table, kr.Sum, name="table")
    ```
    """
    call = AllreduceCall(
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
def grouped_reducescatter(
    tensors: Sequence[Any],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduces and scatters several tensors as one operation.

    Args:
        tensors: A list of tensors as in `reducescatter`; dtypes may differ.
            May be empty.
        op: As in `allreduce`.
        name: As in `allreduce`.
        prescale_factor: As in `allreduce`.
        postscale_factor: As in `allreduce`.
        compression: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        A list of tensors.

    Raises:
        TypeError: As in `grouped_allreduce`.
        ValueError: If one of the tensors is a scalar.
        tf.errors.OpError: As in `allreduce`.
    """
    check_list(tensors)
    if not tensors:
        return []
    call = AllreduceCall(
        tensors,
        op,
        names.collective_name("grouped_reducescatter", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return run_reductions([call], Kind.reducescatter)[0]
