"""Collectives as TensorFlow ops."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring import _graph, _native, _xla, basics


class ReduceOp(enum.IntEnum):
    """How `allreduce` combines the ranks' values, element by element."""

    # The numbers of the native ReduceOp.
    Average = 0
    Sum = 1
    Min = 2
    Max = 3
    Product = 4


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product

# Reductions that commute with a factor, so that the factors may be fused into
# the copies; for the others they are ops of their own.
_LINEAR = (ReduceOp.Average, ReduceOp.Sum)

# Numbers of the native RequestKind.
_ALLREDUCE = 0
_BROADCAST = 2

_unnamed = itertools.count()


def allreduce(
    tensor: Any,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
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
            rounded down, as in NumPy. Defaults to `Average`.
        name: String. Defaults to one made from the number of unnamed
            operations so far (in eager execution: to one fixed name), so give
            one wherever ranks may differ in their order.
        prescale_factor: Float, multiplied to each rank's tensor before the
            reduction. Floating dtypes only. Defaults to `1.0`.
        postscale_factor: Float, multiplied to the result. Floating dtypes
            only. Defaults to `1.0`.
        compression: One of `keras_ring.Compression`. Defaults to none.

    Returns:
        A tensor like `tensor`, bitwise equal on all ranks. For
        `tf.IndexedSlices`: one with the slices of all ranks.

    Raises:
        TypeError: If `op` is not a `ReduceOp`.
        tf.errors.FailedPreconditionError: If the ranks disagree; the text,
            the same on all of them, names the tensor, the ranks and values.
        tf.errors.InvalidArgumentError: If they agree on something impossible,
            or the name is in flight on this rank.
        tf.errors.UnavailableError: If a rank is lost or has left the job.

    Example:
    ```python
    mean_loss = kr.allreduce(loss, name="loss")
    ```
    """
    if isinstance(tensor, tf.IndexedSlices):
        from keras_ring import gradients

        return gradients.allreduce_indexed_slices(
            tensor,
            op,
            name=_name("allreduce", name),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
        )
    call = AllreduceCall(
        [tensor],
        op,
        _name("allreduce", name),
        prescale_factor,
        postscale_factor,
        compression,
    )
    return allreduce_calls([call])[0][0]


def grouped_allreduce(
    tensors: Sequence[Any],
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = None,
) -> list[Any]:
    """Reduces several tensors as one operation.

    The group is atomic: it is one entry under one name, reduced when every
    rank has all of it.

    Args:
        tensors: A list of tensors as in `allreduce`; dtypes may differ. May be
            empty.
        op: As in `allreduce`.
        name: As in `allreduce`.
        prescale_factor: As in `allreduce`.
        postscale_factor: As in `allreduce`.
        compression: As in `allreduce`.

    Returns:
        A list of tensors like `tensors`.

    Raises:
        TypeError: As in `allreduce`, and if `tensors` is not a list or tuple.

    Example:
    ```python
    loss, accuracy = kr.grouped_allreduce([loss, accuracy], name="logs")
    ```
    """
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            "`tensors` must be a list of tensors. Received: "
            f"{tensors!r} of type {type(tensors).__name__}"
        )
    if not tensors:
        return []
    call = AllreduceCall(
        tensors,
        op,
        _name("grouped_allreduce", name),
        prescale_factor,
        postscale_factor,
        compression,
    )
    return allreduce_calls([call])[0]


def allgather(tensor: Any, *, name: str | None = None) -> Any:
    """Concatenates the ranks' tensors along the first dimension.

    Args:
        tensor: A tensor of at least one dimension. The first may differ from
            rank to rank (and may be 0); dtype and the other dimensions must
            agree. Every dtype of `allreduce`, bool, complex64, complex128.
        name: As in `allreduce`.

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
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank == 0:
        raise ValueError(
            "`allgather` needs at least one dimension to concatenate along. "
            f"Received a scalar: {tensor}. Reshape it to [1]."
        )
    name = _name("allgather", name)
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
    gathered = _native.tf_ops().keras_ring_allgather(
        tensor=tensor, tensor_name=name
    )
    _independent(gathered)
    return gathered


def broadcast(tensor: Any, root_rank: int, *, name: str | None = None) -> Any:
    """Gives every rank the root's tensor.

    Args:
        tensor: A tensor of the same dtype and shape on every rank; only the
            root's values matter. Dtypes as in `allgather`.
        root_rank: Integer, the rank that sends.
        name: As in `allreduce`.

    Returns:
        The root's tensor.

    Raises:
        tf.errors.OpError: As in `allreduce`.

    Example:
    ```python
    seed = kr.broadcast(seed, root_rank=0, name="seed")
    ```
    """
    tensors = [tf.convert_to_tensor(tensor)]
    attributes = {
        "tensor_name": _name("broadcast", name),
        "root_rank": root_rank,
    }
    if _xla.is_tracing():
        return _xla.run([(tensors, {"kind": _BROADCAST, **attributes})])[0][0]
    received = _native.tf_ops().keras_ring_broadcast(
        tensors=tensors, **attributes
    )
    _independent(received[0])
    return received[0]


def barrier(*, name: str | None = None) -> Any:
    """Waits until every rank has come here.

    In a `tf.function` it is ordered among the function's other side effects,
    but other collectives are free to overlap with it.

    Args:
        name: As in `allreduce`.

    Returns:
        In a graph, the operation; in eager execution, `None`.

    Raises:
        tf.errors.OpError: As in `allreduce`.
    """
    name = _name("barrier", name)
    if _xla.is_tracing():
        _xla.reject(
            "barrier",
            name,
            "XLA keeps no order between what has no result and the rest. Call "
            "it outside of the function.",
        )
    return _native.tf_ops().keras_ring_barrier(tensor_name=name)


@dataclasses.dataclass(frozen=True)
class AllreduceCall:
    """One call of `grouped_allreduce`, whose arguments these are."""

    tensors: Sequence[Any]
    op: ReduceOp
    name: str
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    compression: Any = None


def allreduce_calls(calls: Sequence[AllreduceCall]) -> list[list[Any]]:
    """Reduces what several calls ask for.

    The same as one `grouped_allreduce` after the other. But under XLA all are
    started before any is waited for.

    Args:
        calls: A list of `AllreduceCall`.

    Returns:
        The result of each.
    """
    prepared = [_prepare(call) for call in calls]
    if _xla.is_tracing():
        results = _xla.run(
            [
                (tensors, {"kind": _ALLREDUCE, **attributes})
                for tensors, attributes, _ in prepared
            ]
        )
    else:
        results = [
            _native.tf_ops().keras_ring_allreduce(tensors=tensors, **attributes)
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


def _prepare(
    call: AllreduceCall,
) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Returns a call's tensors and attributes, and what `_finish` needs."""
    op = call.op
    if not isinstance(op, ReduceOp):
        raise TypeError(
            "`op` must be one of keras_ring.Average, Sum, Min, Max, Product. "
            f"Received: {op!r}"
        )
    tensors = [tf.convert_to_tensor(tensor) for tensor in call.tensors]
    contexts: list[Any] = [None] * len(tensors)
    if call.compression is not None:
        pairs = [call.compression.compress(tensor) for tensor in tensors]
        tensors, contexts = (
            list(column) for column in zip(*pairs, strict=True)
        )
    linear = op in _LINEAR
    if not linear:
        tensors = [_scale(tensor, call.prescale_factor) for tensor in tensors]
    attributes = {
        "tensor_name": call.name,
        "reduce_op": int(op),
        "prescale_bits": _double_bits(call.prescale_factor if linear else 1.0),
        "postscale_bits": _double_bits(
            call.postscale_factor if linear else 1.0
        ),
    }
    return tensors, attributes, contexts


def _finish(
    call: AllreduceCall, reduced: Sequence[Any], contexts: Sequence[Any]
) -> list[Any]:
    """Undoes in the results what `_prepare` did to the tensors."""
    if call.op not in _LINEAR:
        reduced = [_scale(tensor, call.postscale_factor) for tensor in reduced]
    if call.compression is not None:
        reduced = [
            call.compression.decompress(tensor, context)
            for tensor, context in zip(reduced, contexts, strict=True)
        ]
    return list(reduced)


def _scale(tensor: Any, factor: float) -> Any:
    return tensor if factor == 1.0 else tensor * tf.cast(factor, tensor.dtype)


def _double_bits(value: float) -> int:
    """The bits of a double as an int64, as the op's attribute takes it."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _from_double_bits(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


def _independent(output: Any) -> None:
    if not tf.executing_eagerly():
        _graph.run_independently(output.op)


def _name(kind: str, name: str | None) -> str:
    if name is not None:
        return name
    if tf.executing_eagerly():
        # An eager op has finished before the next one starts, so one name
        # serves all, and the ranks' response caches stay small.
        return f"{kind}.eager"
    return f"{kind}.{next(_unnamed)}"


def _gradient_name(op: Any, suffix: str) -> str:
    base = op.get_attr("tensor_name").decode()
    if tf.executing_eagerly():
        return f"{base}/{suffix}"
    # A tape may differentiate one op several times in one graph.
    return f"{base}/{suffix}.{next(_unnamed)}"


@tf.RegisterGradient("KerasRingAllreduce")  # type: ignore[untyped-decorator]
def _allreduce_gradient(op: Any, *gradients: Any) -> list[Any]:
    reduce_op = ReduceOp(op.get_attr("reduce_op"))
    name = _gradient_name(op, "gradient")
    if reduce_op in _LINEAR:
        # The loss is the sum of the ranks' losses, and every rank's output
        # depends on every rank's input with the same factor.
        call = AllreduceCall(
            list(gradients),
            reduce_op,
            name,
            _from_double_bits(op.get_attr("prescale_bits")),
            _from_double_bits(op.get_attr("postscale_bits")),
        )
        return allreduce_calls([call])[0]
    total = grouped_allreduce(list(gradients), Sum, name=name)
    if reduce_op is Product:
        return [
            gradient * _product_of_others(tensor, f"{name}/{i}")
            for i, (gradient, tensor) in enumerate(
                zip(total, op.inputs, strict=True)
            )
        ]
    # Min, Max: to the ranks that hold the extremum, in equal parts.
    holds = [
        tf.cast(tf.equal(tensor, extremum), tensor.dtype)
        for tensor, extremum in zip(op.inputs, op.outputs, strict=True)
    ]
    holders = grouped_allreduce(holds, Sum, name=f"{name}/holders")
    return [
        gradient * hold / count
        for gradient, hold, count in zip(total, holds, holders, strict=True)
    ]


def _product_of_others(tensor: Any, name: str) -> Any:
    """The product of the other ranks' tensors; no division, for zeros."""
    everyone = allgather(tensor[tf.newaxis], name=f"{name}/factors")
    before = tf.math.cumprod(everyone, exclusive=True)
    after = tf.math.cumprod(everyone, exclusive=True, reverse=True)
    return (before * after)[basics.rank()]


@tf.RegisterGradient("KerasRingAllgather")  # type: ignore[untyped-decorator]
def _allgather_gradient(op: Any, gradient: Any) -> Any:
    name = _gradient_name(op, "gradient")
    rows = tf.shape(op.inputs[0], out_type=tf.int64)[:1]
    all_rows = allgather(rows, name=f"{name}/rows")
    total = allreduce(gradient, Sum, name=name)
    begin = tf.reduce_sum(all_rows[: basics.rank()])
    return total[begin : begin + rows[0]]


@tf.RegisterGradient("KerasRingBroadcast")  # type: ignore[untyped-decorator]
def _broadcast_gradient(op: Any, *gradients: Any) -> list[Any]:
    name = _gradient_name(op, "gradient")
    total = grouped_allreduce(list(gradients), Sum, name=name)
    if op.get_attr("root_rank") == basics.rank():
        return total
    # The root waits for this rank's part, so it must not be pruned.
    with tf.control_dependencies(total):
        return [tf.identity(tf.zeros_like(gradient)) for gradient in total]


@tf.RegisterGradient("KerasRingXlaDone")  # type: ignore[untyped-decorator]
def _xla_done_gradient(op: Any, *gradients: Any) -> list[Any]:
    results = [None] * op.get_attr("N")
    with _xla.compiling():
        for collective, its_gradients in _xla.started(op, gradients):
            if collective.get_attr("kind") == _BROADCAST:
                results += _broadcast_gradient(collective, *its_gradients)
            else:
                results += _allreduce_gradient(collective, *its_gradients)
    return results
