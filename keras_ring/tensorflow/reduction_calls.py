"""Checks, scales and compresses reductions for the native ops."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring._typing import DType, Tensor
from keras_ring.core import process_sets
from keras_ring.core.operations import reducible
from keras_ring.core.reduce_ops import SCALED, Adasum, ReduceOp
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.tensorflow import (
    libraries,
    names,
    ordering,
    topology_ops,
    xla,
)
from keras_ring.tensorflow.compression import Compression, Compressor
from keras_ring.tensorflow.op_attributes import Kind

OF_A_STEP = (
    "It is of a step of an elastic job, which XLA cannot compile yet. Compile "
    "the model with `jit_compile=False`."
)


def allreduce_calls(calls: Sequence[ReductionCall]) -> list[list[Tensor]]:
    """Runs several allreduces.

    The result is that of one `grouped_allreduce` after the other. Under XLA
    all of them are started before the first wait.

    Args:
        calls: A list of `ReductionCall`.

    Returns:
        The result of each.
    """
    named = [
        dataclasses.replace(
            call, name=names.collective_name("allreduce", call.name)
        )
        for call in calls
    ]
    return run_reductions(named, Kind.allreduce)


def run_reductions(
    calls: Sequence[ReductionCall], kind: Kind
) -> list[list[Tensor]]:
    """Runs reductions of one kind that have names.

    Args:
        calls: The calls, each with a name.
        kind: `Kind.allreduce` or `Kind.reducescatter`.

    Returns:
        For each call a list of its results.
    """
    prepared = [_prepare(call, kind) for call in calls]
    if xla.is_tracing():
        results = xla.run(
            [
                xla.Start(
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
        function = getattr(libraries.ops(), f"keras_ring_{kind.name}")
        results = [
            function(tensors=tensors, **attributes)
            for tensors, attributes, _ in prepared
        ]
        for reduced in results:
            independent(reduced[0])
    return [
        _finish(call, reduced, contexts)
        for call, reduced, (*_, contexts) in zip(
            calls, results, prepared, strict=True
        )
    ]


def _rows_of_results(
    kind: Kind, tensors: Sequence[Tensor], call: ReductionCall
) -> list[int] | None:
    if kind is not Kind.reducescatter:
        return None
    for tensor in tensors:
        if tensor.shape.rank is None or tensor.shape[0] is None:
            xla.reject(
                "reducescatter",
                call.name,
                "XLA compiles for fixed shapes, and the shape of this tensor "
                f"is {tensor.shape} while the function is traced. Trace it "
                "with a tensor of a known shape.",
            )
    members = call.process_set
    # Any value will do for a rank that is no member: its op fails when it runs.
    rank = topology_ops.rank_in_graph(members) if members.included() else 0
    size = topology_ops.size_in_graph(members)
    return [scattered_rows(tensor.shape[0], rank, size) for tensor in tensors]


def scattered_rows(rows: int, rank: int, size: int) -> int:
    """Returns how many of `rows` rows `reducescatter` gives to a rank."""
    return rows // size + (rank < rows % size)


def _prepare(
    call: ReductionCall, kind: Kind
) -> tuple[list[Tensor], dict[str, int | str], list[Any]]:
    """Returns a call's tensors and attributes, and the state for `_finish`."""
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
            check_rows("reducescatter", "divide", tensor)
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
    attributes: dict[str, int | str] = {
        "tensor_name": call.name,
        "process_set_id": process_sets.id_of(call.process_set),
        "reduce_op": int(op),
        "prescale_bits": _double_bits(call.prescale_factor if fused else 1.0),
        "postscale_bits": _double_bits(call.postscale_factor if fused else 1.0),
        "compression": number or 0,
    }
    if call.commit_group:
        if xla.is_tracing():
            xla.reject(kind.name, call.name, OF_A_STEP)
        attributes["commit_group"] = call.commit_group
    return tensors, attributes, contexts


def _finish(
    call: ReductionCall, reduced: Sequence[Tensor], contexts: Sequence[Any]
) -> list[Tensor]:
    """Reverses in the results the changes that `_prepare` made."""
    if not _factors_are_fused(call.op, reduced):
        reduced = [scaled(tensor, call.postscale_factor) for tensor in reduced]
    if _native_compression(call.compression) is None:
        reduced = [
            call.compression.decompress(tensor, context)
            for tensor, context in zip(reduced, contexts, strict=True)
        ]
    return list(reduced)


def check_list(tensors: object) -> None:
    """Raises a `TypeError` if `tensors` is not a list or tuple."""
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            "`tensors` must be a list of tensors. Received: "
            f"{tensors!r} of type {type(tensors).__name__}"
        )


def check_rows(what: str, purpose: str, tensor: Tensor) -> None:
    """Raises a `ValueError` if `tensor` is a scalar."""
    if tensor.shape.rank == 0:
        raise ValueError(
            f"`{what}` needs at least one dimension to {purpose}. "
            f"Received a scalar: {tensor}. Reshape it to [1]."
        )


def check_reducible(kind: Kind, op: ReduceOp, tensor: Tensor) -> None:
    """Raises a `TypeError` if `op` cannot reduce tensors of this type."""
    dtype = tensor.dtype
    if dtype.name in reducible() and (op is not Adasum or dtype.is_floating):
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
        f"{', '.join(sorted(reducible()))}. {advice} Received: {tensor}"
    )


def _native_compression(compression: Any) -> int | None:
    """Returns the number of a compression, or `None` if it has none."""
    if compression is None:
        compression = Compression.none
    return compression.native if isinstance(compression, Compressor) else None


def _factors_are_fused(op: ReduceOp, tensors: Sequence[Tensor]) -> bool:
    """Returns whether a reduction applies the factors while it copies."""
    return op in SCALED and all(each.dtype.is_floating for each in tensors)


def scaled(tensor: Tensor, factor: Any) -> Tensor:
    """Returns a tensor times a number; integers are multiplied in float64.

    Args:
        tensor: A tensor.
        factor: Float, or a scalar.
    """
    if not tf.is_tensor(factor) and factor == 1.0:
        return tensor
    if tensor.dtype.is_floating:
        return tensor * as_type(factor, tensor.dtype)
    product = tf.cast(tensor, tf.float64) * as_type(factor, tf.float64)
    return tf.cast(product, tensor.dtype)


def as_type(factor: Any, dtype: DType) -> Tensor:
    """Returns a scalar of a type for a float or a scalar."""
    if tf.is_tensor(factor):
        return tf.cast(factor, dtype)
    return tf.constant(factor, dtype)


def _double_bits(value: float) -> int:
    """Returns the bits of a double as an int64, for an attribute of an op."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def independent(output: Tensor) -> None:
    """Lets a collective run at the same time as other stateful ops."""
    if not tf.executing_eagerly():
        ordering.run_independently(output.op)
