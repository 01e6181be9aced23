"""Collectives as TensorFlow ops."""

from __future__ import annotations

import dataclasses
import enum
import functools
import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring import _graph, _names, _xla
from keras_ring._autograph import unconverted
from keras_ring._horovod_arguments import takes_horovods
from keras_ring._runtime import native, process_sets
from keras_ring._runtime.process_sets import ProcessSet, global_process_set
from keras_ring.compression import Compression, Compressor


class ReduceOp(enum.IntEnum):
    """How `allreduce` combines the ranks' values.

    All but `Adasum` do so element by element. `Adasum` takes each tensor as a
    vector; of two it makes

        (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b

    which is their sum where they are at right angles and their mean where they
    are equal: steps that ranks propose are added up only as far as they say
    different things. (A factor whose denominator is zero is 1.) Of more than
    two, ranks 0 and 1 make one, 2 and 3, and so on; then the first two of
    these, and so on until one is left. Where their number is odd, the last is
    carried up as it is: of five ranks it is the Adasum of that of the first
    four and the fifth. Dot products are those of whole tensors and summed in
    float64; one that has an infinity or a NaN comes out without a finite
    number.
    """

    # The numbers of the native ReduceOp.
    Average = 0
    Sum = 1
    Min = 2
    Max = 3
    Product = 4
    Adasum = 5


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product
Adasum = ReduceOp.Adasum

LINEAR = (ReduceOp.Average, ReduceOp.Sum)
# Reductions that commute with a factor, so that the factors may be fused into
# the copies; for the others they are ops of their own.
_SCALED = (*LINEAR, ReduceOp.Adasum)


class Kind(enum.IntEnum):
    """What there is under XLA: the numbers of the native RequestKind."""

    allreduce = 0
    broadcast = 2
    reducescatter = 4


# By the numbers of the native Compression.
_COMPRESSIONS = (Compression.none, Compression.fp16, Compression.bf16)


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "average device_dense device_sparse compression op prescale_factor "
    "postscale_factor name process_set",
    "name average prescale_factor postscale_factor op compression",
)
@unconverted
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
            `keras_ring.compression.Compressor`. Defaults to none.
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
            _names.collective_name("allreduce", name),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
            process_set=process_set,
        )
    call = AllreduceCall(
        [tensor],
        op,
        _names.collective_name("allreduce", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return _run_reductions([call], Kind.allreduce)[0][0]


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "average device_dense device_sparse compression op prescale_factor "
    "postscale_factor process_set",
)
@unconverted
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
    _check_list(tensors)
    if not tensors:
        return []
    name = _names.collective_name("grouped_allreduce", name)
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
        results = _run_reductions([call], Kind.allreduce)[0]
        for i, result in zip(dense, results, strict=True):
            reduced[i] = result
    return reduced


def _allreduce_slices(slices: Any, op: Any, name: str, **settings: Any) -> Any:
    from keras_ring import gradients

    return gradients.allreduce_indexed_slices(slices, op, name=name, **settings)


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "device_dense compression op name process_set prescale_factor "
    "postscale_factor",
    "name op",
)
@unconverted
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
        _names.collective_name("reducescatter", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return _run_reductions([call], Kind.reducescatter)[0][0]


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "device_dense compression op process_set prescale_factor postscale_factor",
)
@unconverted
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
    _check_list(tensors)
    if not tensors:
        return []
    call = AllreduceCall(
        tensors,
        op,
        _names.collective_name("grouped_reducescatter", name),
        prescale_factor,
        postscale_factor,
        compression,
        process_set,
    )
    return _run_reductions([call], Kind.reducescatter)[0]


@takes_horovods(
    "name ignore_name_scope process_set",
)
@unconverted
def allgather(
    tensor: Any,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenates the ranks' tensors along the first dimension.

    Args:
        tensor: A tensor of at least one dimension. The first may differ from
            rank to rank (and may be 0); dtype and the other dimensions must
            agree. Every dtype of `allreduce`, bool, complex64, complex128.
        name: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        A tensor: the ranks' tensors in the order of the ranks.

    Raises:
        ValueError: If `tensor` is a scalar.
        tf.errors.OpError: As in `allreduce`.

    Example:
    ```python
    predictions = kr.allgather(local_predictions, name="predictions")
    ```
    """
    return _allgather(
        [tensor], _names.collective_name("allgather", name), process_set
    )[0]


@takes_horovods(
    "name ignore_name_scope process_set",
)
@unconverted
def grouped_allgather(
    tensors: Sequence[Any],
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gathers several tensors as one operation.

    The group is atomic: it is one entry under one name, gathered when every
    rank has all of it.

    Args:
        tensors: A list of tensors as in `allgather`; dtypes may differ, and
            so may the numbers of rows. May be empty.
        name: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        A list of tensors.

    Raises:
        TypeError: If `tensors` is not a list or tuple.
        ValueError: If one of the tensors is a scalar.
        tf.errors.OpError: As in `allreduce`.

    Example:
    ```python
    labels, scores = kr.grouped_allgather([labels, scores], name="outputs")
    ```
    """
    _check_list(tensors)
    if not tensors:
        return []
    return _allgather(
        tensors, _names.collective_name("grouped_allgather", name), process_set
    )


def _allgather(
    tensors: Sequence[Any], name: str, process_set: ProcessSet
) -> list[Any]:
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    for tensor in tensors:
        _check_rows("allgather", "concatenate along", tensor)
    if _xla.is_tracing():
        _xla.reject(
            "allgather",
            name,
            "How many rows the other ranks bring is known only when it runs, "
            "and XLA compiles for fixed shapes. Call it outside of the "
            "function, or allreduce a tensor in which each rank fills its own "
            "rows. (A `tf.IndexedSlices` is reduced by allgathers: make it "
            "dense with `tf.convert_to_tensor` first.)",
        )
    gathered: list[Any] = native.tf_ops().keras_ring_allgather(
        tensors=tensors,
        tensor_name=name,
        process_set_id=process_sets.id_of(process_set),
    )
    _independent(gathered[0])
    return gathered


@takes_horovods(
    "splits name ignore_name_scope process_set",
)
@unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank its rows of each rank's tensor.

    Args:
        tensor: A tensor of at least one dimension: first the rows for rank 0
            (of the process set), then those for rank 1, and so on. The first
            dimension may differ
            from rank to rank; dtype and the other dimensions must agree.
            Dtypes as in `allgather`.
        splits: A vector of integers, how many rows go to each rank. Defaults
            to as many to each, for which the number of rows must be a multiple
            of the number of ranks.
        name: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        The rows that the ranks had for this one, in the order of the ranks.
        If `splits` is given, a tuple of that and of a vector like `splits`:
        how many rows came from each rank.

    Raises:
        TypeError: If `splits` holds no integers.
        ValueError: If `tensor` is a scalar or `splits` is not a vector.
        tf.errors.InvalidArgumentError: On all ranks, if the splits of one are
            negative, too many or too few, or do not add up to its rows, or if
            it gives none and its rows cannot be divided evenly.
        tf.errors.OpError: As in `allreduce`.

    Example:
    ```python
    # Each example goes to the rank that holds its expert.
    inputs, counts = kr.alltoall(sorted_inputs, splits, name="to_experts")
    outputs, _ = kr.alltoall(expert(inputs), counts, name="from_experts")
    ```
    """
    tensor = tf.convert_to_tensor(tensor)
    _check_rows("alltoall", "divide", tensor)
    name = _names.collective_name("alltoall", name)
    if _xla.is_tracing():
        _xla.reject(
            "alltoall",
            name,
            "How many rows the other ranks send is known only when it runs, "
            "and XLA compiles for fixed shapes. Call it outside of the "
            "function.",
        )
    given = tf.zeros([0], tf.int64) if splits is None else _as_splits(splits)
    received, received_splits = native.tf_ops().keras_ring_alltoall(
        tensor=tensor,
        splits=tf.cast(given, tf.int64),
        tensor_name=name,
        process_set_id=process_sets.id_of(process_set),
    )
    _independent(received)
    if splits is None:
        return received
    return received, tf.cast(received_splits, given.dtype)


def _as_splits(splits: Any) -> Any:
    tensor = tf.convert_to_tensor(splits)
    if not tensor.dtype.is_integer:
        raise TypeError(
            "`splits` must be a vector of integers. Received: "
            f"{splits} of type {tensor.dtype.name}"
        )
    if tensor.shape.rank not in (None, 1) or tensor.shape == [0]:
        raise ValueError(
            "`splits` must be a vector with the number of rows for each rank. "
            f"Received: {splits} of shape {tensor.shape}"
        )
    return tensor


@takes_horovods(
    "name ignore_name_scope process_set",
)
@unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's tensor.

    Args:
        tensor: A tensor of the same dtype and shape on every rank; only the
            root's values matter. Dtypes as in `allgather`.
        root_rank: Integer, the rank that sends: its rank in the job, which is
            a member of the process set.
        name: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        The root's tensor.

    Raises:
        tf.errors.OpError: As in `allreduce`.

    Example:
    ```python
    seed = kr.broadcast(seed, root_rank=0, name="seed")
    ```
    """
    return broadcast_group([tensor], root_rank, name, process_set)[0]


@unconverted
def broadcast_group(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Broadcasts several tensors, at least one, as one operation.

    Args:
        tensors: A list of tensors as in `broadcast`; dtypes may differ.
        root_rank: As in `broadcast`.
        name: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        A list of tensors.
    """
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    attributes = {
        "tensor_name": _names.collective_name("broadcast", name),
        "root_rank": root_rank,
        "process_set_id": process_sets.id_of(process_set),
    }
    if _xla.is_tracing():
        start = _xla.Start(tensors, {"kind": int(Kind.broadcast), **attributes})
        results: list[Any] = _xla.run([start])[0]
        return results
    received: list[Any] = native.tf_ops().keras_ring_broadcast(
        tensors=tensors, **attributes
    )
    _independent(received[0])
    return received


@takes_horovods(
    "process_set name",
)
@unconverted
def barrier(
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Waits until every rank has come here.

    In a `tf.function` it is ordered among the function's other side effects,
    but other collectives are free to overlap with it.

    Args:
        name: As in `allreduce`.
        process_set: As in `allreduce`.

    Returns:
        In a graph, the operation; in eager execution, `None`.

    Raises:
        tf.errors.OpError: As in `allreduce`.
    """
    name = _names.collective_name("barrier", name)
    if _xla.is_tracing():
        _xla.reject(
            "barrier",
            name,
            "XLA keeps no order between what has no result and the rest. Call "
            "it outside of the function.",
        )
    return native.tf_ops().keras_ring_barrier(
        tensor_name=name, process_set_id=process_sets.id_of(process_set)
    )


@unconverted
def join() -> Any:
    """Says that this rank has no more data, and waits until all have said so.

    For ranks with different numbers of steps. One that has joined is left out
    of what the others go on doing:

    * `allreduce`: it brings nothing. `Average` divides by the number of ranks
      that do; extrema and products are theirs; in an `Adasum` it is a vector
      of zeros.
    * `allgather` and `alltoall`: it brings no rows. `broadcast` goes on, and
      a `barrier` counts it as come.
    * What would need it, or would lose what is meant for it, is an error on
      all others: a `broadcast` from it, a `reducescatter`, an `alltoall` with
      rows for it.

    It begins when all that this rank has asked for before is agreed on, and
    until it returns, the rank can ask for nothing else. Then all ranks go on
    together, and may join again. Process sets have no part in it: ranks join
    the job, and collectives on a set still need all of its members.

    In a `tf.function` it waits for the collectives made before it; make none
    after it. In a TensorFlow 1 graph run it by itself, or with
    `tf.control_dependencies` on what comes before.

    Returns:
        The last rank to join, alike on all: an integer, or in a graph a
        scalar tensor of type int32.

    Raises:
        tf.errors.UnavailableError: If a rank is lost or has left the job
            before it joined.
        tf.errors.FailedPreconditionError: If this rank is joining already.

    Example:
    ```python
    for x, y in batches_of_this_rank:  # their number may differ
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        tape = kr.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
    last_rank = kr.join()
    # Only this one has taken part in all steps.
    kr.broadcast_variables(model.variables, root_rank=last_rank)
    ```
    """
    if _xla.is_tracing():
        _xla.reject(
            "join",
            "join",
            "XLA keeps no order between it and the collectives before it. "
            "Call it outside of the function.",
        )
    _joins.append(True)
    function = native.tf_ops().keras_ring_join
    if tf.executing_eagerly():
        return int(function(tensor_name="join"))
    with tf.control_dependencies(_graph.collectives_so_far()):
        return function(tensor_name="join")


# Whether this process has ever called `join`.
_joins: list[bool] = []


def has_joined() -> bool:
    """Whether this process has called `join`, as all ranks do or none.

    Ranks that have are no part of what others do meanwhile. So what all ranks
    do once, each when it comes to it, some of them may have done without this
    one.
    """
    return bool(_joins)


@dataclasses.dataclass(frozen=True)
class AllreduceCall:
    """One call of `grouped_allreduce` or `grouped_reducescatter`."""

    tensors: Sequence[Any]
    op: ReduceOp
    name: str
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    compression: Any = None
    process_set: ProcessSet = global_process_set


def allreduce_calls(calls: Sequence[AllreduceCall]) -> list[list[Any]]:
    """Reduces what several calls ask for.

    The same as one `grouped_allreduce` after the other. But under XLA all are
    started before any is waited for.

    Args:
        calls: A list of `AllreduceCall`.

    Returns:
        The result of each.
    """
    named = [
        dataclasses.replace(
            call, name=_names.collective_name("allreduce", call.name)
        )
        for call in calls
    ]
    return _run_reductions(named, Kind.allreduce)


def _run_reductions(
    calls: Sequence[AllreduceCall], kind: Kind
) -> list[list[Any]]:
    prepared = [_prepare(call, kind) for call in calls]
    if _xla.is_tracing():
        results = _xla.run(
            [
                _xla.Start(
                    tensors,
                    {"kind": int(kind), **attributes},
                    _rows_of_results(kind, tensors, call),
                )
                for call, (tensors, attributes, _) in zip(
                    calls, prepared, strict=True
                )
            ]
        )
    else:
        function = getattr(native.tf_ops(), f"keras_ring_{kind.name}")
        results = [
            function(tensors=tensors, **attributes)
            for tensors, attributes, _ in prepared
        ]
        for reduced in results:
            _independent(reduced[0])
    return [
        _finish(call, reduced, contexts)
        for call, reduced, (*_, contexts) in zip(
            calls, results, prepared, strict=True
        )
    ]


def _rows_of_results(
    kind: Kind, tensors: Sequence[Any], call: AllreduceCall
) -> list[int] | None:
    if kind is not Kind.reducescatter:
        return None
    for tensor in tensors:
        if tensor.shape.rank is None or tensor.shape[0] is None:
            _xla.reject(
                "reducescatter",
                call.name,
                "XLA compiles for fixed shapes, and the shape of this tensor "
                f"is {tensor.shape} while the function is traced. Trace it "
                "with a tensor of a known shape.",
            )
    members = call.process_set
    # Of a rank that is no member, whatever: it fails when it runs.
    place = members.rank() if members.included() else 0
    return [
        scattered_rows(tensor.shape[0], place, members.size())
        for tensor in tensors
    ]


def scattered_rows(rows: int, rank: int, size: int) -> int:
    """Returns how many of `rows` rows `reducescatter` gives to a rank."""
    return rows // size + (rank < rows % size)


def _prepare(
    call: AllreduceCall, kind: Kind
) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Returns a call's tensors and attributes, and what `_finish` needs."""
    op = call.op
    if not isinstance(op, ReduceOp):
        raise TypeError(
            "`op` must be one of keras_ring.Average, Sum, Min, Max, Product, "
            f"Adasum. Received: {op!r}"
        )
    if op is Adasum and kind is Kind.reducescatter:
        raise ValueError(
            "`reducescatter` has no Adasum: what is in a part depends on all "
            "of the tensor. Take this rank's rows of an `allreduce`."
        )
    tensors = [tf.convert_to_tensor(tensor) for tensor in call.tensors]
    for tensor in tensors:
        check_reducible(kind, op, tensor)
        if kind is Kind.reducescatter:
            _check_rows("reducescatter", "divide", tensor)
    contexts: list[Any] = [None] * len(tensors)
    number = _native_compression(call.compression)
    if number is None:
        pairs = [call.compression.compress(tensor) for tensor in tensors]
        tensors, contexts = (
            list(column) for column in zip(*pairs, strict=True)
        )
    fused = _factors_are_fused(op, tensors)
    if not fused:
        tensors = [scaled(tensor, call.prescale_factor) for tensor in tensors]
    attributes = {
        "tensor_name": call.name,
        "process_set_id": process_sets.id_of(call.process_set),
        "reduce_op": int(op),
        "prescale_bits": _double_bits(call.prescale_factor if fused else 1.0),
        "postscale_bits": _double_bits(call.postscale_factor if fused else 1.0),
        "compression": number or 0,
    }
    return tensors, attributes, contexts


def _finish(
    call: AllreduceCall, reduced: Sequence[Any], contexts: Sequence[Any]
) -> list[Any]:
    """Undoes in the results what `_prepare` did to the tensors."""
    if not _factors_are_fused(call.op, reduced):
        reduced = [scaled(tensor, call.postscale_factor) for tensor in reduced]
    if _native_compression(call.compression) is None:
        reduced = [
            call.compression.decompress(tensor, context)
            for tensor, context in zip(reduced, contexts, strict=True)
        ]
    return list(reduced)


def _check_list(tensors: Any) -> None:
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            "`tensors` must be a list of tensors. Received: "
            f"{tensors!r} of type {type(tensors).__name__}"
        )


def _check_rows(what: str, purpose: str, tensor: Any) -> None:
    if tensor.shape.rank == 0:
        raise ValueError(
            f"`{what}` needs at least one dimension to {purpose}. "
            f"Received a scalar: {tensor}. Reshape it to [1]."
        )


@functools.cache
def _reducible() -> frozenset[str]:
    return frozenset(
        name for name, reducible in native.core().dtypes() if reducible
    )


def check_reducible(kind: Kind, op: ReduceOp, tensor: Any) -> None:
    """Raises a `TypeError` if there is no such reduction of a tensor."""
    dtype = tensor.dtype
    if dtype.name in _reducible() and (op is not Adasum or dtype.is_floating):
        return
    if op is Adasum:
        raise TypeError(
            f"`{kind.name}` has an Adasum of floating-point tensors only. "
            f"Received: {tensor}"
        )
    advice = "Cast it to a number that is."
    if dtype.is_complex:
        advice = (
            "Reduce `tf.math.real` and `tf.math.imag` of it as two tensors."
        )
    raise TypeError(
        f"`{kind.name}` has no {op.name} of {dtype.name} tensors; it reduces "
        f"{', '.join(sorted(_reducible()))}. {advice} Received: {tensor}"
    )


def _native_compression(compression: Any) -> int | None:
    """The number of a compression; `None` where it has methods to call."""
    if compression is None:
        compression = Compression.none
    return compression.native if isinstance(compression, Compressor) else None


def _factors_are_fused(op: ReduceOp, tensors: Sequence[Any]) -> bool:
    """Whether the copies of a reduction multiply by its factors."""
    return op in _SCALED and all(each.dtype.is_floating for each in tensors)


def scaled(tensor: Any, factor: float) -> Any:
    """Returns a tensor times a number; that of integers in float64."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating:
        return tensor * tf.constant(factor, tensor.dtype)
    product = tf.cast(tensor, tf.float64) * tf.constant(factor, tf.float64)
    return tf.cast(product, tensor.dtype)


def _double_bits(value: float) -> int:
    """The bits of a double as an int64, as the op's attribute takes it."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _independent(output: Any) -> None:
    if not tf.executing_eagerly():
        _graph.run_independently(output.op)


def reduce_op_of(op: Any) -> ReduceOp:
    """Returns the `ReduceOp` of a TensorFlow operation."""
    return ReduceOp(op.get_attr("reduce_op"))


def factors_of(op: Any) -> tuple[float, float]:
    """Returns the prescale and postscale factors of a TensorFlow operation."""
    prescale, postscale = (
        struct.unpack("<d", struct.pack("<q", op.get_attr(name)))[0]
        for name in ("prescale_bits", "postscale_bits")
    )
    return prescale, postscale


def compression_of(op: Any) -> Compressor:
    """Returns the compression of a TensorFlow operation."""
    return _COMPRESSIONS[op.get_attr("compression")]


# At the end, for the gradients of collectives are collectives.
from keras_ring import _op_gradients  # noqa: E402, F401
